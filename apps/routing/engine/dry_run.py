"""Dry run of the routing decision for one item, with the reasons for each outbound.

The decision is made by ``Life`` itself, and its queries to the matcher and to the queues are
recorded. An explanation therefore always agrees with what a router would do with the same rules,
ledger entry and queue lengths. Nothing is sent, stored or counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from apps.routing.engine.converters.chain import ConverterChanges
from apps.routing.engine.explanations import (
    MOST_SELECTORS,
    NO_UUID,
    InboundExplanation,
    ItemExplanation,
    ItemRejection,
    MessageExplanation,
    OutboundExplanation,
    ResultExplanation,
    Verdict,
)
from apps.routing.engine.items import Item, ItemError, check_item, read_item
from apps.routing.engine.life import (
    Full,
    KnownItem,
    Life,
    expects_result,
    status_of,
    status_text,
    uuid_of,
)
from apps.routing.engine.messages import message
from apps.routing.engine.outbounds import registry
from apps.routing.engine.outbounds.base import Outcome, encode
from apps.routing.engine.outbounds.parameters import masked
from apps.routing.engine.outcomes import Action, Decision
from apps.routing.engine.rules import Outbound
from apps.routing.engine.selector.conditions import explain_conditions
from apps.routing.engine.track import CompiledInbound, Track

# Parameters of outbound classes that name the queue, topic or store of the target.
_NAMES: Final = ("key", "queue", "topic", "exchange", "job", "store", "frontier")

# Return the ledger entry of a ``task_uuid``, or None if the ledger does not have it.
Lookup = Callable[[str], KnownItem | None]


class UnknownInbound(LookupError):
    """Raised when the rule set has no inbound of the given name."""


class Event(StrEnum):
    """Event on an item in the ledger that no incoming message causes."""

    # The result timeout has passed.
    TIMED_OUT = "timed_out"
    # The item is parked, and its outbound is checked again for free capacity.
    OFFERED = "offered"


def explain_item(
    track: Track,
    raw_or_item: bytes | str | Mapping[str, Any],
    *,
    inbound: str | None,
    known: KnownItem | Lookup | None = None,
    now: datetime,
    full: Full = lambda outbound: False,
) -> ItemExplanation:
    """Explain what the router would do with an item that arrives at ``inbound``.

    Args:
        inbound: name of the inbound; None skips conversion and the inbound's selectors.
        known: ledger entry of the item, or a function that looks it up by ``task_uuid``. As in
            ``Life``, it is used only if the item is a result.
        now: time-zone aware; becomes the ``submit_time`` of the message.
        full: return whether an outbound has no capacity left.

    Raises:
        UnknownInbound: the rule set has no inbound of this name.
    """
    entrance = None
    if inbound is not None:
        entrance = track.entrances.get(inbound)
        if entrance is None:
            raise UnknownInbound(inbound)
    try:
        received = _received(raw_or_item)
    except ItemError as error:
        refused = ItemRejection(error.code, str(error), error.offset)
        return _undecided(track, None, refused, _entered(entrance, None), (), None)
    steps: tuple[ConverterChanges, ...] = ()
    item = received
    if entrance is not None:
        chain = entrance.chain.explain(received)
        steps = chain.steps
        if chain.item is None:
            why = chain.error
            code, text = ("", "") if why is None else (why.code, why.text)
            refused = ItemRejection(code, text, converter=steps[-1].cls)
            return _undecided(track, received, refused, _entered(entrance, None), steps, None)
        item = chain.item
    entered = _entered(entrance, item)
    known = _known(item, known)
    if known is None and entered is not None and not entered.accepts:
        return _undecided(track, received, None, entered, steps, item)
    recorded = _RecordedLife(track, full)
    decision = recorded.life.decide(item, known)
    return ItemExplanation(
        version=track.version,
        received=received,
        refused=None,
        inbound=entered,
        steps=steps,
        converted=item,
        known=known,
        result=None if known is None else _result(track, decision, known),
        decision=decision,
        outbounds=recorded.outbounds(decision, known),
        message=_message(track, decision, known, now),
    )


def _received(raw_or_item: bytes | str | Mapping[str, Any]) -> Item:
    """Return the item that was received. Raises ``ItemError`` if it is invalid."""
    if not isinstance(raw_or_item, Mapping):
        return read_item(raw_or_item)
    received = dict(raw_or_item)
    check_item(received)
    return received


def _known(item: Item, known: KnownItem | Lookup | None) -> KnownItem | None:
    """Return the ledger entry of the item if the item is a result, else None."""
    if status_of(item) is None:
        return None
    if not callable(known):
        return known
    name = uuid_of(item)
    return None if name is None else known(name)


def explain_known(
    track: Track,
    known: KnownItem,
    event: Event,
    *,
    now: datetime,
    full: Full = lambda outbound: False,
) -> ItemExplanation:
    """Explain what the router would do with an item of the ledger on ``event``."""
    recorded = _RecordedLife(track, full)
    decide = recorded.life.timed_out if event is Event.TIMED_OUT else recorded.life.offer
    decision = decide(known)
    return ItemExplanation(
        version=track.version,
        received=known.item,
        refused=None,
        inbound=None,
        steps=(),
        converted=known.item,
        known=known,
        result=None,
        decision=decision,
        outbounds=recorded.outbounds(decision, known),
        message=_message(track, decision, known, now),
    )


def _undecided(
    track: Track,
    received: Item | None,
    refused: ItemRejection | None,
    inbound: InboundExplanation | None,
    steps: tuple[ConverterChanges, ...],
    item: Item | None,
) -> ItemExplanation:
    outbounds = () if item is None else _RecordedLife(track).explanations(item, {})
    return ItemExplanation(
        version=track.version,
        received=received,
        refused=refused,
        inbound=inbound,
        steps=steps,
        converted=item,
        known=None,
        result=None,
        decision=None,
        outbounds=outbounds,
        message=None,
    )


def _entered(entrance: CompiledInbound | None, item: Item | None) -> InboundExplanation | None:
    if entrance is None:
        return None
    rule = entrance.rule
    if item is None:
        return InboundExplanation(rule.name, rule.cls, rule.disable, None, ())
    texts = rule.selector[:MOST_SELECTORS]
    selectors = tuple(explain_conditions(text, item) for text in texts)
    return InboundExplanation(rule.name, rule.cls, rule.disable, entrance.accepts(item), selectors)


class _RecordedLife:
    """``Life`` with its queries to the matcher and to the queues recorded."""

    def __init__(self, track: Track, full: Full = lambda outbound: False) -> None:
        self._track = track
        self._ask_full = full
        self._skipped: set[int] | None = None
        self._full: set[str] = set()
        self.life = Life(track.rules, self._first, self._is_full)

    def _first(self, item: Item, skip: frozenset[int]) -> int | None:
        self._skipped = {*(self._skipped or ()), *skip}
        return self._track.ways.first(item, skip)

    def _is_full(self, outbound: Outbound) -> bool:
        is_full = self._ask_full(outbound)
        if is_full:
            self._full.add(outbound.name)
        return is_full

    def outbounds(
        self, decision: Decision, known: KnownItem | None
    ) -> tuple[OutboundExplanation, ...]:
        """Return one explanation for each outbound, from the queries that led to ``decision``."""
        goes = {Action.DISPATCH: Verdict.TAKEN, Action.HOLD: Verdict.HELD}.get(decision.action)
        decided = {} if goes is None else {decision.outbound: goes}
        return self.explanations(decision.item, decided, "" if known is None else known.outbound)

    def explanations(
        self, item: Item, decided: Mapping[str, Verdict], was_at: str = ""
    ) -> tuple[OutboundExplanation, ...]:
        """Return one explanation for each outbound; ``decided`` overrides verdicts by name."""
        fits = frozenset(self._track.ways.all(item))
        left = MOST_SELECTORS
        explained = []
        for index, outbound in enumerate(self._track.rules.outbounds):
            selectors = None
            left -= len(outbound.selector)
            if left >= 0 or outbound.name in decided:
                selectors = tuple(explain_conditions(text, item) for text in outbound.selector)
            explained.append(
                OutboundExplanation(
                    place=index + 1,
                    name=outbound.name,
                    cls=outbound.cls,
                    verdict=decided.get(outbound.name) or self._verdict(index, index in fits),
                    matches=index in fits,
                    disabled=outbound.disable,
                    was_here=outbound.name == was_at,
                    selectors=selectors,
                )
            )
        return tuple(explained)

    def _verdict(self, index: int, matches: bool) -> Verdict:
        outbound = self._track.rules.outbounds[index]
        if outbound.disable:
            return Verdict.DISABLED
        if outbound.name in self._full:
            return Verdict.FULL
        if self._skipped is None:
            return Verdict.NOT_ASKED
        if index in self._skipped:
            return Verdict.PASSED_OVER
        if matches:
            return Verdict.LATER
        return Verdict.NOT_MATCHED if outbound.selector else Verdict.NO_SELECTOR


def _result(track: Track, decision: Decision, known: KnownItem) -> ResultExplanation:
    status = decision.status
    outbound = track.outbounds.get(known.outbound)
    back = track.outbounds.get(outbound.failback) if outbound is not None else None
    return ResultExplanation(
        status=status,
        outbound=known.outbound,
        outbound_exists=outbound is not None,
        terminal=_among(status, track.rules.terminal_codes),
        dont_retry=outbound is not None and _among(status, outbound.dont_retry_status),
        direct_failback=outbound is not None and _among(status, outbound.direct_failback_status),
        retry_times=known.counters.retry_times,
        retry_limits=0 if outbound is None else outbound.retry_limits,
        failback="" if outbound is None else outbound.failback,
        failback_usable=back is not None and back is not outbound and not back.disable,
        routed_count=known.counters.routed_count,
        most_routings=track.rules.most_routings,
    )


def _among(status: str, codes: tuple[int | str, ...]) -> bool:
    return any(status_text(code) == status for code in codes)


def _message(
    track: Track, decision: Decision, known: KnownItem | None, now: datetime
) -> MessageExplanation | None:
    if decision.action not in (Action.DISPATCH, Action.HOLD):
        return None
    outbound = track.outbounds[decision.outbound]
    body = message(
        outbound,
        decision.item,
        uuid=NO_UUID if known is None else known.uuid,
        counters=decision.counters,
        submit_time=now,
    )
    written = encode(body)
    waits = outbound.expects_result
    # The class of an outbound may be installed on the router's host only.
    with suppress(registry.UnknownOutbound, ImportError):
        waits = expects_result(outbound, registry.find(outbound.cls).default_expects_result)
    return MessageExplanation(
        outbound=outbound.name,
        cls=outbound.cls,
        target=_target(outbound),
        message=body,
        waits_for_result=waits,
        result_timeout_seconds=outbound.result_timeout_seconds,
        token_scope=outbound.token_scope,
        token_per_second=outbound.token_per_second,
        refused=written.reason if isinstance(written, Outcome) else "",
    )


def _target(outbound: Outbound) -> dict[str, str]:
    """Return the names and the URL of the outbound's target, with secrets masked."""
    values = {name: outbound.init.get(name) for name in _NAMES}
    explained = {name: value for name, value in values.items() if isinstance(value, str) and value}
    url = outbound.init.get("url")
    return explained | ({"url": masked(url)} if isinstance(url, str) else {})
