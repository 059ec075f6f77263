"""State machine of an item: pure decisions without a clock, a store or a queue.

A failure is handled in the order of the seed: retry at the same outbound; else send to the
failback of that outbound; else, for a status in ``dont_retry_status``, route by the rules again;
else end the item. The seed leaves the following open:

- **Result or new item.** An item with a known ``task_uuid`` and a ``task_result`` is a result. Any
  other item is new and gets a new ``task_uuid``; the one that it carries becomes its ``origin``.
  The carried one is never reused: a log that is delivered twice would otherwise be taken for the
  result of the item that the first delivery created.
- **Counters** are the maximum of the ledger's values and the item's values. A new item inherits
  ``routed_count`` and ``group_retry_times`` from the item whose log it is, so that a loop of
  derived items ends as well; its ``retry_times`` start at 0.
- **Attempts** are numbered by ``group_retry_times``, which increases each time that an item is sent
  again, to any outbound. A failure of an earlier attempt is ignored, because a later attempt is
  in progress; a success of an earlier attempt counts. Final states never change.
- **A routing** is the assignment of an item to an outbound by a rule or as a failback. A retry is
  not a routing. An item that needs a further routing beyond the limit ends as failed.
- **A refused message** is one that the target permanently rejects on sending. The item goes to the
  failback, else it fails: it is not routed again, because the next matching outbound was not
  meant for it.
- **A disabled outbound** takes no items: neither by a rule, nor as a failback, nor as a retry. An
  item that would be retried there goes to the failback, else it is routed again. An item whose
  outbound was removed is routed again, because the retry settings are no longer known.
- **A failback** that is disabled, missing or the outbound itself is ignored.
- **reset_retry_times** is read from the outbound that an item moves to, because ``retry_times``
  counts the retries there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from apps.routing.engine.items import Item
from apps.routing.engine.messages import (
    TASK_RESULT,
    TASK_UUID,
    Counters,
    accepted,
    after_result,
    value_of,
)
from apps.routing.engine.outcomes import FINAL, Action, Decision, Reason, TaskState
from apps.routing.engine.rules import Outbound, Overflow, RuleSet

# Return the index of the first outbound that matches the item and is not in the given set.
First = Callable[[Item, frozenset[int]], int | None]
Full = Callable[[Outbound], bool]

_MOST_COUNT: Final = 2**31 - 1
_MOST_UUID: Final = 64


@dataclass(frozen=True, slots=True)
class KnownItem:
    """Ledger entry of an item."""

    uuid: str
    state: TaskState
    # Outbound that the item was last sent to, or that a parked item waits for.
    outbound: str
    counters: Counters = field(default_factory=Counters)
    # Item after the last decision.
    item: Item = field(default_factory=dict)


def uuid_of(item: Mapping[str, Any]) -> str | None:
    """Return the ``task_uuid`` that an item carries; None if there is no valid one."""
    value = value_of(item, TASK_UUID)
    return value if isinstance(value, str) and 0 < len(value) <= _MOST_UUID else None


def status_of(item: Mapping[str, Any]) -> str | None:
    """Return the ``task_result`` of an item as text; None if it is missing or empty."""
    return status_text(item.get(TASK_RESULT))


def status_text(value: Any) -> str | None:
    """Normalize a status for comparison: 1000, 1000.0 and "1000" are equal."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip() or None


def carried_counters(item: Mapping[str, Any]) -> Counters:
    """Return the counters that an item carries; a missing or invalid counter is 0."""
    return Counters(
        _count(value_of(item, "routed_count")) or 0,
        _count(value_of(item, "retry_times")) or 0,
        _count(value_of(item, "group_retry_times")) or 0,
    )


def expects_result(outbound: Outbound, of_class: bool) -> bool:
    """Return whether results are expected from an outbound; ``of_class`` is the default."""
    return of_class if outbound.expects_result is None else outbound.expects_result


class Life:
    """Decision logic for the items of one version of a rule set. Holds no mutable state.

    ``first`` matches an item against all outbounds in their order, including disabled ones;
    ``full`` returns whether the queue of an outbound has reached its ``max_lag``.
    """

    def __init__(self, rules: RuleSet, first: First, full: Full = lambda outbound: False) -> None:
        self._outbounds = rules.outbounds
        self._first = first
        self._full = full
        self._most_routings = rules.most_routings
        self._terminal = _statuses(rules.terminal_codes)
        self._index = {outbound.name: index for index, outbound in enumerate(rules.outbounds)}
        self._off = frozenset(i for i, outbound in enumerate(rules.outbounds) if outbound.disable)
        self._refused = [
            (_statuses(outbound.dont_retry_status), _statuses(outbound.direct_failback_status))
            for outbound in rules.outbounds
        ]

    def decide(self, item: Item, known: KnownItem | None) -> Decision:
        """Decide about an incoming item; ``known`` is the ledger entry of its ``task_uuid``."""
        if known is None or status_of(item) is None:
            return self._new(item)
        return self._result(item, known)

    def timed_out(self, known: KnownItem) -> Decision:
        """Decide about an item whose result timeout has passed.

        The item is retried within the retry limit of its outbound, else it expires.
        """
        case = _Case(_as_known(known), known.counters, TaskState.EXPIRED, known.outbound)
        if known.state != TaskState.DISPATCHED:
            return case.ignore(known.state, Reason.NOT_WAITING)
        index = self._index.get(known.outbound)
        if index is None:
            return self._route(case, self._off, Reason.OUTBOUND_GONE)
        outbound = self._outbounds[index]
        if known.counters.retry_times >= outbound.retry_limits:
            return case.end(TaskState.EXPIRED, Reason.NO_RESULT, outbound)
        return self._retry(case, index)

    def offer(self, known: KnownItem) -> Decision:
        """Decide about a parked item: send it if its outbound has capacity now.

        If the outbound is disabled or was removed, the item is routed again. This does not count
        as a second routing, because the item was never sent there. An item that no other outbound
        matches stays parked for a disabled one.
        """
        case = _Case(known.item, known.counters, TaskState.FAILED, known.outbound, held=True)
        if known.state != TaskState.PARKED:
            return case.ignore(known.state, Reason.NOT_PARKED)
        index = self._index.get(known.outbound)
        if index is not None and index not in self._off:
            outbound = self._outbounds[index]
            if self._full(outbound):
                return case.hold(outbound, known.counters)
            return case.send(outbound, known.counters, Reason.ROOM)
        before = replace(known.counters, routed_count=max(0, known.counters.routed_count - 1))
        reason = Reason.OUTBOUND_GONE if index is None else Reason.OUTBOUND_DISABLED
        moved = self._route(replace(case, before=before), self._off, reason)
        if moved.reason is not Reason.NO_RULE:
            return moved
        if index is not None:
            return case.hold(self._outbounds[index], known.counters, Reason.OUTBOUND_DISABLED)
        if known.counters.group_retry_times == 0:
            return case.end(TaskState.REJECTED, Reason.NO_RULE)
        return case.end(TaskState.FAILED, Reason.NO_RULE)

    def refused(self, decision: Decision) -> Decision:
        """Decide about an item that its outbound permanently rejected: failback, else failed.

        ``decision`` is the one by which the item was sent. A rejected message does not count as
        an attempt.
        """
        case = _Case(
            decision.item,
            decision.counters,
            TaskState.FAILED,
            decision.outbound,
            status=decision.status,
            origin=decision.origin,
            new=decision.is_new,
            held=not decision.is_new,
        )
        index = self._index[decision.outbound]
        failback = self._failback(index)
        if failback is not None:
            return self._move(case, failback, self._off | {index}, Reason.FAILBACK)
        return case.end(TaskState.FAILED, Reason.REFUSED, self._outbounds[index])

    # --- new items and results --------------------------------------------------------------------

    def _new(self, item: Item) -> Decision:
        carried = carried_counters(item)
        before = Counters(carried.routed_count, 0, carried.group_retry_times)
        case = _Case(accepted(item), before, TaskState.REJECTED, "", origin=uuid_of(item), new=True)
        return self._route(case, self._off, Reason.MATCHED)

    def _result(self, result: Item, known: KnownItem) -> Decision:
        if known.state is TaskState.RECEIVED:
            # The result arrived before the ledger recorded that the item was sent.
            sent_to = value_of(result, "outbound")
            if isinstance(sent_to, str) and sent_to in self._index:
                known = replace(known, outbound=sent_to)
        counters = _larger(known.counters, carried_counters(result))
        item = after_result(
            known.item, result, uuid=known.uuid, outbound=known.outbound, counters=counters
        )
        status = status_of(result) or ""
        case = _Case(item, counters, TaskState.FAILED, known.outbound, status=status)
        if known.state in FINAL:
            return case.ignore(known.state, Reason.LATE_RESULT)
        if status in self._terminal:
            return case.end(TaskState.SUCCEEDED, Reason.TERMINAL)
        if _is_stale(result, known):
            return replace(case, before=known.counters, item=known.item).ignore(
                known.state, Reason.STALE_RESULT
            )
        return self._failed(case, known.outbound, status)

    def _failed(self, case: _Case, name: str, status: str) -> Decision:
        index = self._index.get(name)
        if index is None:
            return self._route(case, self._off, Reason.OUTBOUND_GONE)
        outbound = self._outbounds[index]
        dont_retry, direct_failback = self._refused[index]
        may_retry = status not in dont_retry and status not in direct_failback
        if may_retry and case.before.retry_times < outbound.retry_limits:
            return self._retry(case, index)
        failback = self._failback(index)
        if failback is not None:
            return self._move(case, failback, self._off | {index}, Reason.FAILBACK)
        if status in dont_retry:
            return self._route(case, self._off | {index}, Reason.ROUTED_AGAIN)
        reason = Reason.RETRY_LIMITS if may_retry else Reason.NO_FAILBACK
        return case.end(TaskState.FAILED, reason, outbound)

    # --- choice of the outbound -------------------------------------------------------------------

    def _retry(self, case: _Case, index: int) -> Decision:
        """Retry at the same outbound; if it is disabled, use its failback or the rules."""
        if index in self._off:
            failback = self._failback(index)
            if failback is not None:
                return self._move(case, failback, self._off, Reason.FAILBACK)
            return self._route(case, self._off, Reason.OUTBOUND_DISABLED)
        before = case.before
        after = Counters(before.routed_count, before.retry_times + 1, before.group_retry_times + 1)
        return self._place(case, index, after, self._off, Reason.RETRY)

    def _route(self, case: _Case, skip: frozenset[int], reason: Reason) -> Decision:
        """Move the item to the first matching outbound, or end it."""
        if case.before.routed_count >= self._most_routings:
            return self._no_routing_left(case)
        index = self._first(case.item, skip)
        if index is None:
            return case.end(case.otherwise, Reason.NO_RULE)
        return self._move(case, index, skip, reason)

    def _move(self, case: _Case, index: int, skip: frozenset[int], reason: Reason) -> Decision:
        if case.before.routed_count >= self._most_routings:
            return self._no_routing_left(case)
        return self._place(case, index, self._moved(case, index), skip, reason)

    def _no_routing_left(self, case: _Case) -> Decision:
        # The rules were not evaluated, so REJECTED would be wrong.
        state = TaskState.FAILED if case.otherwise is TaskState.REJECTED else case.otherwise
        return case.end(state, Reason.ROUTING_LIMITS)

    def _moved(self, case: _Case, index: int) -> Counters:
        before = case.before
        reset = self._outbounds[index].reset_retry_times
        again = 0 if case.new or case.held else 1
        return Counters(
            before.routed_count + 1,
            0 if reset else before.retry_times,
            before.group_retry_times + again,
        )

    def _failback(self, index: int) -> int | None:
        target = self._index.get(self._outbounds[index].failback)
        return None if target == index or target in self._off else target

    def _place(
        self, case: _Case, wanted: int, counters: Counters, skip: frozenset[int], reason: Reason
    ) -> Decision:
        """Send the item to ``wanted``, or apply its ``overflow`` policy if its queue is full."""
        index, after = wanted, counters
        while True:
            outbound = self._outbounds[index]
            if not self._full(outbound):
                return case.send(outbound, after, reason)
            if outbound.overflow is Overflow.FAIL:
                return case.end(TaskState.FAILED, Reason.OVERFLOW, outbound)
            if outbound.overflow is Overflow.HOLD:
                return case.hold(outbound, after)
            skip |= {index}
            target = None
            if case.before.routed_count < self._most_routings:
                target = self._first(case.item, skip)
            if target is None:
                # No other outbound matches: wait for the first one instead of failing.
                return case.hold(self._outbounds[wanted], counters)
            index, after, reason = target, self._moved(case, target), Reason.NEXT


# Not frozen: one is created for each item, and creating a frozen one takes three times as long.
@dataclass(slots=True)
class _Case:
    """Item under decision, with the state before it."""

    item: Item
    before: Counters
    # Final state if no rule matches.
    otherwise: TaskState
    # Name of the current outbound.
    at: str
    status: str = ""
    origin: str | None = None
    new: bool = False
    held: bool = False

    def send(self, outbound: Outbound, after: Counters, reason: Reason) -> Decision:
        # Valid until the message is delivered: see Decision.delivered.
        state = TaskState.RETRYING
        if self.new:
            state = TaskState.RECEIVED
        elif self.held:
            state = TaskState.PARKED
        return self._decision(Action.DISPATCH, state, reason, outbound.name, after)

    def hold(
        self, outbound: Outbound, after: Counters, reason: Reason = Reason.QUEUE_FULL
    ) -> Decision:
        return self._decision(Action.HOLD, TaskState.PARKED, reason, outbound.name, after)

    def end(self, state: TaskState, reason: Reason, outbound: Outbound | None = None) -> Decision:
        name = outbound.name if outbound else self.at
        return self._decision(Action.END, state, reason, name, self.before)

    def ignore(self, state: TaskState, reason: Reason) -> Decision:
        return self._decision(Action.IGNORE, state, reason, self.at, self.before)

    def _decision(
        self, action: Action, state: TaskState, reason: Reason, outbound: str, counters: Counters
    ) -> Decision:
        return Decision(
            action,
            state,
            reason,
            outbound,
            counters,
            self.item,
            is_new=self.new,
            origin=self.origin,
            status=self.status,
        )


def _as_known(known: KnownItem) -> Item:
    """Return the item with the router's keys from the ledger, because rules may use them."""
    return after_result(
        known.item, {}, uuid=known.uuid, outbound=known.outbound, counters=known.counters
    )


def _is_stale(result: Item, known: KnownItem) -> bool:
    """Return whether this failure belongs to an attempt before the current one."""
    attempt = _count(value_of(result, "group_retry_times"))
    if attempt is None:
        # The attempt is unknown. A parked item has no attempt in progress, so it is an old one.
        return known.state is TaskState.PARKED
    return attempt < known.counters.group_retry_times


def _larger(one: Counters, other: Counters) -> Counters:
    return Counters(
        max(one.routed_count, other.routed_count),
        max(one.retry_times, other.retry_times),
        max(one.group_retry_times, other.group_retry_times),
    )


def _count(value: Any) -> int | None:
    """Return a carried counter, clamped to 0..2**31 - 1; None if it is not an integer."""
    if isinstance(value, str) and len(value) <= len(str(_MOST_COUNT)) and value.isdecimal():
        value = int(value)
    if type(value) is not int:
        return None
    return min(max(value, 0), _MOST_COUNT)


def _statuses(values: tuple[int | str, ...]) -> frozenset[str]:
    return frozenset(text for value in values if (text := status_text(value)) is not None)
