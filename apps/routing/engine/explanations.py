"""Result types of ``dry_run``: plain values for pages and for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from apps.routing.engine.converters.chain import ConverterChanges
from apps.routing.engine.items import Item
from apps.routing.engine.life import KnownItem
from apps.routing.engine.outcomes import Decision
from apps.routing.engine.selector.conditions import SelectorExplanation
from apps.routing.engine.truncation import shortened

# Placeholder: a new item gets its ``task_uuid`` only when a router receives it.
NO_UUID: Final = "00000000-0000-0000-0000-000000000000"
# Maximum number of selectors explained by condition; the others show only their verdict.
MOST_SELECTORS: Final = 500
# Approximate length limits of a shown message and of each text in it, in characters.
MOST_OF_MESSAGE: Final = 100_000
MOST_OF_TEXT: Final = 20_000
FILTERED: Final = "No condition of the inbound matches: the task is counted and not stored."


class Verdict(StrEnum):
    """Outcome of one outbound in a routing decision."""

    TAKEN = "taken"
    HELD = "held"
    LATER = "later"
    NOT_MATCHED = "not_matched"
    NO_SELECTOR = "no_selector"
    DISABLED = "disabled"
    PASSED_OVER = "passed_over"
    FULL = "full"
    NOT_ASKED = "not_asked"


# Marks texts for translation, without an import of Django in the engine.
_ = str

VERDICTS: Final[Mapping[Verdict, str]] = {
    Verdict.TAKEN: _("The task is sent here."),
    Verdict.HELD: _("The task waits for room here."),
    Verdict.LATER: _("Also matches, but an earlier outbound comes first."),
    Verdict.NOT_MATCHED: _("No condition matches."),
    Verdict.NO_SELECTOR: _("No conditions: used only as a failback."),
    Verdict.DISABLED: _("Disabled."),
    Verdict.PASSED_OVER: _("Skipped: the task has just failed here."),
    Verdict.FULL: _("Full: max_lag messages are waiting."),
    Verdict.NOT_ASKED: _("Not evaluated: the decision did not need the rules."),
}


@dataclass(frozen=True, slots=True)
class ItemRejection:
    """Reason why an item is malformed: invalid JSON, or a converter rejected the item."""

    code: str
    text: str
    # Offset of the JSON error in characters, from 0.
    offset: int | None = None
    # Class of the converter that rejected the item; "" if the JSON was invalid.
    converter: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict; a long text is truncated."""
        return asdict(self) | {"text": self.text[:MOST_OF_TEXT]}


@dataclass(frozen=True, slots=True)
class InboundExplanation:
    """Inbound that received an item, and whether its selectors accept the item."""

    name: str
    cls: str
    disabled: bool
    # None if the item was rejected before the selectors were evaluated.
    accepts: bool | None
    selectors: tuple[SelectorExplanation, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "name": self.name,
            "class": self.cls,
            "disabled": self.disabled,
            "accepts": self.accepts,
            "selectors": [selector.as_dict() for selector in self.selectors],
        }


@dataclass(frozen=True, slots=True)
class OutboundExplanation:
    """Verdict on one outbound; ``matches`` is the result of its selectors alone."""

    # Position in the rule set, from 1.
    place: int
    name: str
    cls: str
    verdict: Verdict
    matches: bool
    disabled: bool
    # Whether the item was at this outbound before the decision.
    was_here: bool
    # None if the rule set has too many selectors to list (see ``MOST_SELECTORS``).
    selectors: tuple[SelectorExplanation, ...] | None

    @property
    def text(self) -> str:
        """Human-readable text of the verdict."""
        return VERDICTS[self.verdict]

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        selectors = self.selectors
        return {
            "place": self.place,
            "name": self.name,
            "class": self.cls,
            "verdict": self.verdict.value,
            "text": self.text,
            "matches": self.matches,
            "disabled": self.disabled,
            "was_here": self.was_here,
            "selectors": None
            if selectors is None
            else [selector.as_dict() for selector in selectors],
        }


@dataclass(frozen=True, slots=True)
class ResultExplanation:
    """Criteria that decide about a result, in the order of evaluation."""

    status: str
    # Name of the outbound that the result came from.
    outbound: str
    outbound_exists: bool
    terminal: bool
    dont_retry: bool
    direct_failback: bool
    retry_times: int
    retry_limits: int
    failback: str
    # Whether the failback exists, is enabled and differs from the outbound itself.
    failback_usable: bool
    routed_count: int
    most_routings: int


@dataclass(frozen=True, slots=True)
class MessageExplanation:
    """Message that would be sent to the outbound."""

    outbound: str
    cls: str
    # For example {"key": "ic:captcha", "url": "redis://:***@10.8.6.1/0"}.
    target: Mapping[str, str]
    # Complete message; the ``task_uuid`` of a new item is ``NO_UUID``.
    message: Item
    waits_for_result: bool | None
    result_timeout_seconds: float
    token_scope: str
    token_per_second: float
    # Why the outbound would reject the message before sending; "" if it would not.
    refused: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict; ``cut`` is true if the message was truncated."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "cls"}
        message, cut = shortened(self.message, MOST_OF_MESSAGE, MOST_OF_TEXT)
        return values | {"class": self.cls, "message": message, "cut": cut}


@dataclass(frozen=True, slots=True)
class ItemExplanation:
    """Complete explanation of the routing decision for one item."""

    version: int
    # Item as it was read; None if it could not be parsed.
    received: Item | None
    refused: ItemRejection | None
    inbound: InboundExplanation | None
    steps: tuple[ConverterChanges, ...]
    # Item after all converters; None if one of them rejected the item.
    converted: Item | None
    # Ledger entry, if the item is a result or the explanation is about an event.
    known: KnownItem | None
    result: ResultExplanation | None
    # None if the item is malformed or the inbound does not accept it.
    decision: Decision | None
    outbounds: tuple[OutboundExplanation, ...]
    message: MessageExplanation | None

    @property
    def outcome(self) -> str:
        """Value of an ``Action``, or ``refused`` or ``filtered`` if there is no decision."""
        if self.decision is not None:
            return self.decision.action.value
        return "refused" if self.refused is not None else "filtered"

    @property
    def text(self) -> str:
        """Human-readable reason of the outcome."""
        if self.decision is not None:
            return self.decision.text
        return FILTERED if self.refused is None else self.refused.text

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict; long values are truncated and marked."""
        return {
            "version": self.version,
            "outcome": self.outcome,
            "text": self.text,
            "received": shortened(self.received)[0],
            "refused": self.refused and self.refused.as_dict(),
            "inbound": self.inbound and self.inbound.as_dict(),
            "steps": [_step(step) for step in self.steps],
            "converted": shortened(self.converted)[0],
            "known": self.known and _known(self.known),
            "result": self.result and asdict(self.result),
            "decision": self.decision and _decision(self.decision),
            "outbounds": [outbound.as_dict() for outbound in self.outbounds],
            "message": self.message and self.message.as_dict(),
        }


def _step(step: ConverterChanges) -> dict[str, Any]:
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


def _known(known: KnownItem) -> dict[str, Any]:
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
