"""Errors of this app's plain-Python part, and texts that are translated where they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

_TEXT_CHARACTERS = 200


def gettext_noop(text: str) -> str:
    """Mark a text for translation, by a name that ``makemessages`` knows. Returns the text."""
    return text


class DatasetError(Exception):
    """Base of this app's errors; each has a stable code.

    ``text`` is English, with ``%(name)s`` for parameters. ``apps.datasets.texts`` translates it.
    """

    code: ClassVar[str] = "dataset_error"

    def __init__(self, text: str, /, **params: object) -> None:
        super().__init__(text)
        self.text = text
        self.params: Mapping[str, object] = {
            name: value[:_TEXT_CHARACTERS] if isinstance(value, str) else value
            for name, value in params.items()
        }

    def __str__(self) -> str:
        return self.text % self.params if self.params else self.text


class BadItemQuery(DatasetError):
    """A filter, field, sort order or cursor that cannot be used; the text says which and why."""

    code: ClassVar[str] = "bad_item_query"


class DataUnavailable(DatasetError):
    """The object store does not answer, or a file is missing; the text says which."""

    code: ClassVar[str] = "data_unavailable"


class PageUnavailable(DatasetError):
    """A kept page whose record is missing, damaged or of another run; the text says why."""

    code: ClassVar[str] = "page_unavailable"

    def __init__(self, why: str) -> None:
        super().__init__(gettext_noop("The kept page cannot be read: %(why)s."), why=why)
