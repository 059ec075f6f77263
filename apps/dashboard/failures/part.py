"""A server or a kind of process, as shown on the health page."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import pgettext_lazy


class PartState(enum.StrEnum):
    """State of a part; the most severe first."""

    AWAY = "away"
    HANGS = "hangs"
    TROUBLE = "trouble"
    SLOW = "slow"
    WELL = "well"
    # Neither running nor needed in this installation.
    UNUSED = "unused"

    @property
    def label(self) -> Promise:
        return _LABELS[self]

    @property
    def tone(self) -> str:
        return _TONES[self]

    @property
    def is_bad(self) -> bool:
        """Whether the part needs attention."""
        return self in (PartState.AWAY, PartState.HANGS, PartState.TROUBLE)


_LABELS = {
    PartState.AWAY: pgettext_lazy("part", "unreachable"),
    PartState.HANGS: pgettext_lazy("part", "not responding"),
    PartState.TROUBLE: pgettext_lazy("part", "degraded"),
    PartState.SLOW: pgettext_lazy("part", "slow"),
    PartState.WELL: pgettext_lazy("part", "OK"),
    PartState.UNUSED: pgettext_lazy("part", "not in use"),
}
_TONES = {
    PartState.AWAY: "danger",
    PartState.HANGS: "danger",
    PartState.TROUBLE: "warning",
    PartState.SLOW: "warning",
    PartState.WELL: "success",
    PartState.UNUSED: "default",
}


class Fact(NamedTuple):
    """One figure of a part. ``key`` is the same in every language.

    ``number`` is None if unknown, as for queues of an unreachable broker.
    """

    key: str
    title: str
    number: int | None


@dataclass(frozen=True, slots=True)
class SystemPart:
    """A server or a kind of process with its state, affected work, effects and repair commands.

    ``since`` is when the state began: for a server, when this web process first saw it; for
    processes, the last heartbeat of a silent one or the start of the oldest. None: unknown.
    ``runbook`` is the heading of its section in the runbook.
    """

    key: str
    title: str
    icon: str
    state: PartState
    detail: str
    facts: list[Fact]
    happens: str
    lost: str
    back: str
    since: datetime | None = None
    noticed: str = ""
    commands: list[str] = field(default_factory=list)
    runbook: str = ""
