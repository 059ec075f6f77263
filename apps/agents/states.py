"""Modes of agents, and whether a run can be given an agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from django.db.models import TextChoices
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from yardkit.protocol import Policy
from yardkit.topology import AGENT_ALIVE_SECONDS

ALIVE_FOR: Final = timedelta(seconds=AGENT_ALIVE_SECONDS)


class AgentMode(TextChoices):
    """An operator's decision about an agent; independent of whether it is alive."""

    ENABLED = "enabled", _("enabled")
    """Gets new runs."""
    DRAINING = "draining", _("draining")
    """Gets no new runs, goes on with those it serves."""
    DISABLED = "disabled", _("disabled")
    """Nothing more is sent to it; its runs go on with their other agents."""


# Colours of modes, by the names of the admin theme's labels.
MODE_TONES: Final[dict[str, str]] = {
    AgentMode.ENABLED: "success",
    AgentMode.DRAINING: "warning",
    AgentMode.DISABLED: "danger",
}


class UnavailableReason(TextChoices):
    """Why a run cannot be given an agent."""

    DISABLED = "disabled", _("disabled")
    SILENT = "silent", _("not alive")
    DRAINING = "draining", _("draining")
    TYPE = "type", _("cannot make this type of downloader")


def is_alive(heartbeat_at: datetime | None, now: datetime) -> bool:
    """Return whether the last heartbeat is younger than 11 s by the receiver's clock (seed
    S1.38).
    """
    return heartbeat_at is not None and now - heartbeat_at < ALIVE_FOR


def why_not(
    *, alive: bool, mode: str, types: Collection[str], wanted: str
) -> UnavailableReason | None:
    """Return why a run that wants a downloader of type ``wanted`` cannot be given this agent, or
    None.

    An operator's decision takes precedence over its consequences: an agent that was disabled
    because it is gone is "disabled".
    """
    if mode == AgentMode.DISABLED:
        return UnavailableReason.DISABLED
    if not alive:
        return UnavailableReason.SILENT
    if mode == AgentMode.DRAINING:
        return UnavailableReason.DRAINING
    return None if wanted in types else UnavailableReason.TYPE


def wanted_number(policy: str, asked: int) -> int:
    """Return how many agents a run wants; 0 is all. Fixed and chained want at least one."""
    return asked if policy == Policy.RANDOM else max(1, asked)


def given_number(policy: str, asked: int, eligible: int) -> int:
    """Return how many of the eligible agents a run gets."""
    wanted = wanted_number(policy, asked)
    return eligible if policy == Policy.RANDOM else min(wanted, eligible)


def none_text(refusals: Iterable[UnavailableReason], wanted: str) -> str:
    """Return ``no agent can be given: 2 not alive, 1 draining``."""
    counted = _counted(refusals, wanted) or gettext("no agent has registered yet")
    return gettext("no agent available: %(reasons)s") % {"reasons": counted}


def shortfall_text(
    asked: int, given: int, refusals: Iterable[UnavailableReason], wanted: str
) -> str:
    """Return why a run gets fewer agents than it asked for; "" if it gets enough."""
    if given >= asked:
        return ""
    text = gettext("%(asked)d agents requested, %(given)d available") % {
        "asked": asked,
        "given": given,
    }
    counted = _counted(refusals, wanted)
    return f"{text} ({counted})" if counted else text


def refusal_text(refusal: UnavailableReason, wanted: str) -> str | Promise:
    """Return the reason as text; it names the wanted type."""
    if refusal == UnavailableReason.TYPE:
        return gettext('cannot make type "%(type)s"') % {"type": wanted}
    return refusal.label


def _counted(refusals: Iterable[UnavailableReason], wanted: str) -> str:
    counts = Counter(refusals)
    return ", ".join(
        f"{counts[each]} {refusal_text(each, wanted)}" for each in UnavailableReason if counts[each]
    )
