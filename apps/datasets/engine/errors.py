"""Errors of this app."""

from __future__ import annotations

from typing import ClassVar


class DatasetError(Exception):
    """Base of this app's errors; each has a stable code."""

    code: ClassVar[str] = "dataset_error"


class BadItemQuery(DatasetError):
    """A filter, field, sort order or cursor that cannot be used; the text says which and why."""

    code: ClassVar[str] = "bad_item_query"


class DataUnavailable(DatasetError):
    """The object store does not answer, or a file is missing; the text says which."""

    code: ClassVar[str] = "data_unavailable"
