"""What an explanation says: plain values, for pages and as JSON. Made by ``explaining``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from apps.routing.engine.converters.chain import Changed
from apps.routing.engine.items import Item
from apps.routing.engine.life import Known
from apps.routing.engine.outcomes import Decision
from apps.routing.engine.selecting.conditions import SelectorExplanation
from apps.routing.engine.shortening import shortened

# A new item gets its name when it is received; here it has none yet.
NO_UUID: Final = "00000000-0000-0000-0000-000000000000"
# Selectors shown with their conditions; later ones with their verdict alone.
MOST_SELECTORS: Final = 500
# A message is to be shown as it is, so far as anybody can read it: characters, about.
MOST_OF_MESSAGE: Final = 100_000
MOST_OF_TEXT: Final = 20_000
FILTERED: Final = "No selector of the inbound wants it: it is counted, and not kept."


class Verdict(StrEnum):
    """What became of one outbound."""

    TAKEN = "taken"
    HELD = "held"
    LATER = "later"
    NOT_MATCHED = "not_matched"
    NO_SELECTOR = "no_selector"
    DISABLED = "disabled"
    PASSED_OVER = "passed_over"
    FULL = "full"
    NOT_ASKED = "not_asked"


VERDICTS: Final[Mapping[Verdict, str]] = {
    Verdict.TAKEN: "The item goes here.",
    Verdict.HELD: "The item waits for room here.",
    Verdict.LATER: "It fits too, but an earlier outbound comes first.",
    Verdict.NOT_MATCHED: "None of its selectors holds.",
    Verdict.NO_SELECTOR: "It has no selector: it is reached as a failback only.",
    Verdict.DISABLED: "It is disabled.",
    Verdict.PASSED_OVER: "It is passed over, for the item has just failed there.",
    Verdict.FULL: "It is full: as many items wait there as its max_lag allows.",
    Verdict.NOT_ASKED: "The rules were not asked.",
}


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the item is poison: these bytes are none, or a converter refused it."""

    code: str
    text: str
    # The character of the JSON where it went wrong, from 0.
    offset: int | None = None
    # The class of the converter; "" when it was no JSON.
    converter: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"text": self.text[:MOST_OF_TEXT]}


@dataclass(frozen=True, slots=True)
class InboundExplanation:
    """What an inbound makes of an item, and whether its selectors want it."""

    name: str
    cls: str
    disabled: bool
    # None: it never came so far.
    accepts: bool | None
    selectors: tuple[SelectorExplanation, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "class": self.cls,
            "disabled": self.disabled,
            "accepts": self.accepts,
            "selectors": [one.as_dict() for one in self.selectors],
        }


@dataclass(frozen=True, slots=True)
class OutboundExplanation:
    """One outbound; ``matches`` is what its selectors say, whatever the verdict is."""

    # From 1, in the order of the rules.
    place: int
    name: str
    cls: str
    verdict: Verdict
    matches: bool
    disabled: bool
    # It is where the item was before.
    was_here: bool
    # None: there are too many to list.
    selectors: tuple[SelectorExplanation, ...] | None

    @property
    def text(self) -> str:
        """The verdict, for people."""
        return VERDICTS[self.verdict]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        told = self.selectors
        return {
            "place": self.place,
            "name": self.name,
            "class": self.cls,
            "verdict": self.verdict.value,
            "text": self.text,
            "matches": self.matches,
            "disabled": self.disabled,
            "was_here": self.was_here,
            "selectors": None if told is None else [one.as_dict() for one in told],
        }


@dataclass(frozen=True, slots=True)
class ResultExplanation:
    """What a result is measured by, in the order in which that is asked (seed S2.35)."""

    status: str
    # Where the item was.
    outbound: str
    outbound_exists: bool
    terminal: bool
    dont_retry: bool
    direct_failback: bool
    retry_times: int
    retry_limits: int
    failback: str
    # It is there, enabled, and no other than the outbound itself.
    failback_usable: bool
    routed_count: int
    most_routings: int


@dataclass(frozen=True, slots=True)
class MessageExplanation:
    """What the outbound would be given."""

    outbound: str
    cls: str
    # Such as {"key": "ic:captcha", "url": "redis://:***@10.8.6.1/0"}.
    target: Mapping[str, str]
    # All of it; a new item has no task_uuid yet, and ``NO_UUID`` stands for it.
    message: Item
    waits_for_result: bool | None
    result_timeout_seconds: float
    token_scope: str
    token_per_second: float
    # Why the outbound would refuse it without asking its target; "" when it would not.
    refused: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON; ``cut`` says whether the message is longer than what is shown."""
        told = {name: getattr(self, name) for name in self.__slots__ if name != "cls"}
        message, cut = shortened(self.message, MOST_OF_MESSAGE, MOST_OF_TEXT)
        return told | {"class": self.cls, "message": message, "cut": cut}


@dataclass(frozen=True, slots=True)
class ItemExplanation:
    """All that is known of what would happen to one item."""

    version: int
    # As it was read; None when it could not be.
    received: Item | None
    refused: Refused | None
    inbound: InboundExplanation | None
    steps: tuple[Changed, ...]
    # After all converters; None when one refused it.
    converted: Item | None
    # The ledger knows this item: as a result, or for an event.
    known: Known | None
    result: ResultExplanation | None
    # None: it was refused, or the inbound does not want it.
    decision: Decision | None
    outbounds: tuple[OutboundExplanation, ...]
    message: MessageExplanation | None

    @property
    def outcome(self) -> str:
        """In a word: an ``Action``, or ``refused`` or ``filtered`` when none was decided."""
        if self.decision is not None:
            return self.decision.action.value
        return "refused" if self.refused is not None else "filtered"

    @property
    def text(self) -> str:
        """The outcome, for people."""
        if self.decision is not None:
            return self.decision.text
        return FILTERED if self.refused is None else self.refused.text

    def as_dict(self) -> dict[str, Any]:
        """For JSON; what is too long to be looked at is cut, with a mark where that was."""
        return {
            "version": self.version,
            "outcome": self.outcome,
            "text": self.text,
            "received": shortened(self.received)[0],
            "refused": self.refused and self.refused.as_dict(),
            "inbound": self.inbound and self.inbound.as_dict(),
            "steps": [_step(one) for one in self.steps],
            "converted": shortened(self.converted)[0],
            "known": self.known and _known(self.known),
            "result": self.result and asdict(self.result),
            "decision": self.decision and _decision(self.decision),
            "outbounds": [one.as_dict() for one in self.outbounds],
            "message": self.message and self.message.as_dict(),
        }


def _step(step: Changed) -> dict[str, Any]:
    changed = {
        key: {"before": before, "after": after} for key, (before, after) in step.changed.items()
    }
    error = step.error
    return {
        "class": step.cls,
        "added": shortened(dict(step.added))[0],
        "removed": shortened(dict(step.removed))[0],
        "changed": shortened(changed)[0],
        "error": error and {"code": error.code, "text": error.text[:MOST_OF_TEXT]},
    }


def _known(known: Known) -> dict[str, Any]:
    return {
        "task_uuid": known.uuid,
        "state": known.state.value,
        "outbound": known.outbound,
        "counters": asdict(known.counters),
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "action": decision.action.value,
        "state": decision.state.value,
        "reason": decision.reason.value,
        "text": decision.text,
        "outbound": decision.outbound,
        "status": decision.status,
        "counters": asdict(decision.counters),
        "is_new": decision.is_new,
        "origin": decision.origin,
    }
