"""One part of the installation, as the failure page tells of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import pgettext_lazy


class PartState(enum.StrEnum):
    """How a part is; the worst first."""

    AWAY = "away"
    HANGS = "hangs"
    TROUBLE = "trouble"
    SLOW = "slow"
    WELL = "well"
    # Nobody needs it here.
    UNUSED = "unused"

    @property
    def label(self) -> Promise:
        """In words."""
        return _LABELS[self]

    @property
    def tone(self) -> str:
        """The colour of its label."""
        return _TONES[self]

    @property
    def is_bad(self) -> bool:
        """Whether a person should look."""
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
    """How many of what hang on a part now; ``key`` names it in every language.

    ``number``: None where nobody can say, as with queues of a broker that is away.
    """

    key: str
    title: str
    number: int | None


@dataclass(frozen=True, slots=True)
class SystemPart:
    """One part: how it is, what hangs on it, what happens without it, what to do.

    ``since``: since when it is so. Of a server, when this web process first found it so; of
    processes the last heartbeat of a silent one, or the start of the oldest. None: not known.
    ``runbook``: the heading of its section there.
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
