"""Registered kinds, with errors that REST and the admin can show."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.translation import gettext_lazy as _

from apps.configcenter.engine.kinds import (
    ConfigKind,
    DataProblem,
    Problem,
    UnknownKindName,
    Unreadable,
    find_kind,
)
from apps.configcenter.engine.plain import Data, NotPlain, check_plain
from apps.configcenter.errors import BadConfig, UnknownKind

MOST_SHOWN = 100


class _UnknownKind(ConfigKind):
    """Placeholder for a kind whose app is not installed: its versions stay readable."""

    name = "gone"
    title = _("unknown kind")

    def check(self, data: Data) -> Iterable[Problem]:
        """Report a problem: no installed app knows this kind."""
        return [DataProblem("", "unknown_kind", str(UnknownKind.detail))]


def kind_named(name: str) -> ConfigKind:
    """Return the registered kind. Raises ``UnknownKind``."""
    try:
        return find_kind(name)
    except UnknownKindName:
        raise UnknownKind(fields={"kind": [_("Unknown kind of configuration.")]}) from None


def shown_by(name: str) -> ConfigKind:
    """Return the kind for reading stored data; a placeholder if no app has registered it."""
    try:
        return find_kind(name)
    except UnknownKindName:
        return _UnknownKind()


def problems_of(kind: ConfigKind, data: object) -> list[Problem]:
    """Return the problems of ``data``: values that are not plain first, then those of the kind."""
    try:
        return list(kind.check(check_plain(data)))
    except NotPlain as error:
        return [DataProblem("", "not_plain", str(error))]


def errors_of(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems that are not warnings."""
    return [problem for problem in problems if not problem.warning]


def refuse_errors(problems: Iterable[Problem]) -> None:
    """Raise ``BadConfig`` if a problem is not a warning."""
    errors = errors_of(problems)
    if errors:
        raise BadConfig(fields={"data": [str(error) for error in errors[:MOST_SHOWN]]})


def read_text(*, kind: str, text: str) -> Data:
    """Parse the kind's text form. Raises ``UnknownKind``, ``BadConfig``."""
    try:
        return kind_named(kind).read(text.encode("utf-8", "surrogatepass"))
    except Unreadable as error:
        lines = [str(problem) for problem in error.problems[:MOST_SHOWN]]
        raise BadConfig(fields={"text": lines}) from None
