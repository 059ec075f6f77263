"""Carry out routing decisions: send, park or end items, in batches for each outbound.

Nothing here is written to the ledger. The result is a list of moves, which the caller must commit
after the items were sent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apps.routing.daemon.channels import OutboundChannel, send_together
from apps.routing.daemon.rule_sets import BATCH, RunningRuleSet
from apps.routing.engine.failures import FailureRecord
from apps.routing.engine.messages import TASK_PARAMS, message
from apps.routing.engine.outbounds.base import Outcome, SendStatus, Sent
from apps.routing.engine.outcomes import FINAL, TEXTS, Action, Decision, Reason, TaskState
from apps.routing.engine.steps import Step, StepKind, step
from apps.routing.queries import LedgerEntry
from apps.routing.services import ItemMove, failure_record
from apps.routing.states import ItemState
from yardkit import failpoints
from yardkit.clock import Clock

logger = logging.getLogger(__name__)

# Parked items are found by their outbound, not by their time; a time far ahead keeps them out of
# the queries for due items.
PARKED_SECONDS: Final = 365 * 24 * 3600.0
# Lease on the items of a batch, longer than a batch may take. After it another router claims the
# items of a dead one.
LEASE_SECONDS: Final = 30.0
# Time limit for sending a batch to slow targets. The rest is parked, so that no lease expires.
MOST_SECONDS: Final = 10.0

_STATES: Final = {state: ItemState(state.value) for state in TaskState}
# Reasons without a step of their own: another step already says why.
_WITHOUT_STEP: Final = frozenset({Reason.ROOM})
_PARKING_REASONS: Final = {
    Reason.QUEUE_FULL,
    Reason.OUTBOUND_DISABLED,
    Reason.RATE_LIMIT,
    Reason.TARGET_AWAY,
    Reason.IN_LINE,
    Reason.POSTPONED,
}


@dataclass(slots=True)
class DecidedItem:
    """Claimed item with the decision about it, as ``Sender`` processes it."""

    entry: LedgerEntry
    decision: Decision
    # Steps to write with the next move.
    steps: tuple[Step, ...] = ()
    # The item as stored; if the decision changed it, the next move writes it.
    written: object = None
    # Whether it was parked for this outbound, so that it need not queue behind parked items.
    is_its_turn: bool = False
    # Whether it already has its token of the rate limit.
    has_token: bool = False
    # Error of the target that refused it.
    refusal: str = ""


class Sender:
    """Carries out the decisions of one batch under one version of the rules."""

    def __init__(self, running: RunningRuleSet, clock: Clock, stopping: Callable[[], bool]) -> None:
        self._running = running
        self._clock = clock
        self._stopping = stopping
        self._now = clock.now()
        self._end = time.monotonic() + MOST_SECONDS
        self._steps: dict[tuple[str, str, str], Step] = {}

    def carry_out(self, decided_items: Iterable[DecidedItem]) -> list[ItemMove]:
        """Send, park or end each item; return one move per item, to be committed."""
        moves: list[ItemMove] = []
        left = list(decided_items)
        sent = False
        while left:
            outbounds: dict[str, list[DecidedItem]] = {}
            for decided_item in left:
                if decided_item.decision.action is Action.DISPATCH:
                    outbounds.setdefault(decided_item.decision.outbound, []).append(decided_item)
                else:
                    moves.append(self.move_unsent(decided_item))
            left = []
            servers: dict[Hashable, list[tuple[OutboundChannel, list[DecidedItem]]]] = {}
            for name, group in outbounds.items():
                channel = self._running.outbounds[name]
                servers.setdefault(channel.server, []).append((channel, group))
            for groups in servers.values():
                left += self._send(groups, moves)
                sent = True
        if sent:
            failpoints.hit("router.sent")
        return moves

    def step(self, kind: StepKind, outbound: str = "", detail: str = "") -> Step:
        """Return a step of the current time; equal steps of a batch share one object."""
        key = (kind, outbound, detail)
        cached = self._steps.get(key)
        if cached is None:
            cached = self._steps[key] = step(self._now, kind, outbound, detail)
        return cached

    def routing_step(self, decision: Decision) -> tuple[Step, ...]:
        """Return the step "matched" or "retried" with the outbound and the reason, or nothing."""
        reason = decision.reason
        if reason in _WITHOUT_STEP or decision.action not in (Action.DISPATCH, Action.HOLD):
            return ()
        if reason in _PARKING_REASONS:
            return ()
        kind = StepKind.RETRIED if reason is Reason.RETRY else StepKind.MATCHED
        detail = reason.value if not decision.status else f"{reason.value} {decision.status}"
        return (self.step(kind, decision.outbound, detail),)

    # --- one outbound -----------------------------------------------------------------------------

    def _send(
        self, groups: list[tuple[OutboundChannel, list[DecidedItem]]], moves: list[ItemMove]
    ) -> list[DecidedItem]:
        """Send batches to one server; append the moves, return items that need another outbound."""
        admitted = [
            (channel, decided_items)
            for channel, group in groups
            if (decided_items := self._admitted(channel, group, moves))
        ]
        if not admitted:
            return []
        rerouted: list[DecidedItem] = []
        batches = [
            (channel, self._messages(channel, decided_items, moves))
            for channel, decided_items in admitted
        ]
        outcomes = send_together([(channel, messages) for channel, (_, messages) in batches])
        for (channel, (decided_items, _)), part in zip(batches, outcomes, strict=True):
            rerouted += self._settle(channel, decided_items, part, moves)
        return rerouted

    def _settle(
        self,
        channel: OutboundChannel,
        group: list[DecidedItem],
        outcomes: list[Outcome],
        moves: list[ItemMove],
    ) -> list[DecidedItem]:
        """Append the moves of a sent batch; return refused items with their next decision."""
        rerouted: list[DecidedItem] = []
        now = self._clock.now()
        due_at = now + timedelta(seconds=channel.rule.result_timeout_seconds)
        done = self.step(StepKind.DISPATCHED, channel.rule.name)
        for decided_item, outcome in zip(group, outcomes, strict=True):
            if outcome.verdict is SendStatus.DELIVERED:
                dispatched = done if not outcome.code else self._dispatched_step(channel, outcome)
                moves.append(self._delivered(channel, decided_item, dispatched, due_at))
            elif outcome.verdict is SendStatus.AWAY:
                moves.append(self._parked(decided_item, Reason.TARGET_AWAY, outcome.reason))
            else:
                rerouted.append(self._refused(decided_item, outcome))
        return rerouted

    def _dispatched_step(self, channel: OutboundChannel, outcome: Outcome) -> Step:
        """Return the step of a delivered message, with the code and text of the target's answer."""
        detail = f"{outcome.code} {outcome.reason}".rstrip()
        return self.step(StepKind.DISPATCHED, channel.rule.name, detail)

    def _admitted(
        self, channel: OutboundChannel, group: list[DecidedItem], moves: list[ItemMove]
    ) -> list[DecidedItem]:
        """Return the items that may be sent now; append moves that park the others."""
        if self._stopping() or time.monotonic() > self._end:
            channel.has_parked = True
            moves += [self._parked(decided_item, Reason.POSTPONED) for decided_item in group]
            return []
        unreachable = channel.unreachable
        if unreachable or (channel.has_parked and channel.keeps_order):
            reason = Reason.TARGET_AWAY if unreachable else Reason.IN_LINE
            moves += [self._parked(p, reason, unreachable) for p in group if not p.is_its_turn]
            group = [decided_item for decided_item in group if decided_item.is_its_turn]
        if channel.rule.token_per_second <= 0:
            return group
        asking = [decided_item for decided_item in group if not decided_item.has_token]
        waits = channel.tokens.take(
            [channel.scope_value(decided_item.decision.item) for decided_item in asking]
        )
        late = {
            id(decided_item): wait
            for decided_item, wait in zip(asking, waits, strict=True)
            if wait > 0
        }
        if late:
            channel.has_parked = True
            # The limiter's waits are for one batch. They are multiplied by the number of parked
            # batches, or all items would become due at once, and nearly all in vain.
            crowd = max(1.0, channel.parked / BATCH) if channel.is_scoped else 1.0
            for decided_item in group:
                if id(decided_item) in late:
                    wait = min(late[id(decided_item)] * crowd, PARKED_SECONDS)
                    moves.append(self._parked(decided_item, Reason.RATE_LIMIT, wait=wait))
        return [decided_item for decided_item in group if id(decided_item) not in late]

    def _messages(
        self, channel: OutboundChannel, group: list[DecidedItem], moves: list[ItemMove]
    ) -> tuple[list[DecidedItem], list[Sent]]:
        """Build the messages of a batch; an item that raises is dead-lettered, not its batch."""
        good, batch = [], []
        for decided_item in group:
            try:
                batch.append(self._sent(channel, decided_item))
            except Exception as error:
                logger.exception("message not built: item=%s", decided_item.entry.task_uuid)
                text = f"{type(error).__name__}: {error}"
                moves.append(
                    dead_letter(
                        decided_item.entry, "defect", text, self._running.version, self._now
                    )
                )
            else:
                good.append(decided_item)
        return good, batch

    def _sent(self, channel: OutboundChannel, decided_item: DecidedItem) -> Sent:
        decision = decided_item.decision
        name = str(decided_item.entry.task_uuid)
        made = message(
            channel.rule,
            decision.item,
            uuid=name,
            counters=decision.counters,
            submit_time=self._now,
        )
        params = made[TASK_PARAMS] if channel.rule.task_params_wrapped else made
        return Sent(name, made, params["priority"], params["rt"])

    def _refused(self, decided_item: DecidedItem, outcome: Outcome) -> DecidedItem:
        """Decide again about an item that its target refused permanently."""
        decision = self._running.life.refused(decided_item.decision)
        at = decided_item.decision.outbound
        not_matched = self.step(
            StepKind.NOT_MATCHED, at, f"{Reason.REFUSED.value} {outcome.reason}"
        )
        steps = (*decided_item.steps, not_matched, *self.routing_step(decision))
        return DecidedItem(
            decided_item.entry, decision, steps, decided_item.written, refusal=outcome.reason
        )

    # --- moves ------------------------------------------------------------------------------------

    def _delivered(
        self, channel: OutboundChannel, decided_item: DecidedItem, done: Step, due_at: datetime
    ) -> ItemMove:
        decision = decided_item.decision
        counters = decision.counters
        waits = channel.expects_result
        steps = (*decided_item.steps, done)
        if not waits:
            steps = (*steps, self.step(StepKind.ENDED, channel.rule.name, Reason.DELIVERED.value))
        return ItemMove(
            entry=decided_item.entry,
            to=ItemState.DISPATCHED if waits else ItemState.SUCCEEDED,
            due_at=due_at if waits else None,
            outbound=channel.rule.name,
            steps=steps,
            item=None if decided_item.written is decision.item else decision.item,
            routed_count=counters.routed_count,
            retry_times=counters.retry_times,
            group_retry_times=counters.group_retry_times,
            rules_version=self._running.version,
            reason=Reason.SENT.value if waits else Reason.DELIVERED.value,
        )

    def _parked(
        self, decided_item: DecidedItem, reason: Reason, why: str = "", wait: float = 0.0
    ) -> ItemMove:
        outbound = decided_item.decision.outbound
        detail = why or TEXTS[reason] % {"outbound": outbound, "status": ""}
        note = f"{reason.value} {why}".rstrip()
        seconds = wait or PARKED_SECONDS
        return self._move(
            decided_item,
            TaskState.PARKED,
            outbound,
            self._now + timedelta(seconds=seconds),
            (*decided_item.steps, self.step(StepKind.PARKED, outbound, note)),
            reason,
            detail,
        )

    def move_unsent(self, decided_item: DecidedItem) -> ItemMove:
        """Return the move of an item that is not sent: it is parked by the rules, or ends."""
        decision = decided_item.decision
        if decision.action is Action.HOLD:
            channel = self._running.outbounds.get(decision.outbound)
            if channel is not None:
                channel.has_parked = True
            return self._parked(decided_item, decision.reason)
        why = decision.reason.value
        detail = f"{why} {decision.status}".rstrip()
        steps = decided_item.steps
        if decision.reason is Reason.NO_RULE:
            steps = (*steps, self.step(StepKind.NOT_MATCHED))
        last = self.step(StepKind.ENDED, decision.outbound, detail)
        return self._move(
            decided_item,
            decision.state,
            decision.outbound,
            None,
            (*steps, last),
            decision.reason,
            f"{decision.text} {decided_item.refusal}".rstrip(),
        )

    def _move(
        self,
        decided_item: DecidedItem,
        state: TaskState,
        outbound: str,
        due_at: datetime | None,
        steps: tuple[Step, ...],
        reason: Reason,
        detail: str,
    ) -> ItemMove:
        decision = decided_item.decision
        return ItemMove(
            entry=decided_item.entry,
            to=_STATES[state],
            due_at=due_at,
            outbound=outbound,
            steps=steps,
            item=None if decided_item.written is decision.item else decision.item,
            routed_count=decision.counters.routed_count,
            retry_times=decision.counters.retry_times,
            group_retry_times=decision.counters.group_retry_times,
            rules_version=self._running.version,
            reason=reason.value,
            detail=detail,
        )

    def move_to_retrying(self, decided_item: DecidedItem, lease_seconds: float) -> ItemMove:
        """Return the move to the state ``retrying``; its lease keeps other routers from sending."""
        return self._move(
            decided_item,
            TaskState.RETRYING,
            decided_item.decision.outbound,
            self._now + timedelta(seconds=lease_seconds),
            decided_item.steps,
            decided_item.decision.reason,
            decided_item.decision.text,
        )


def dead_letter(entry: LedgerEntry, code: str, text: str, version: int, now: datetime) -> ItemMove:
    """Return the move that dead-letters an item which cannot be processed."""
    return ItemMove(
        entry=entry,
        to=ItemState.DEAD,
        steps=(step(now, StepKind.ENDED, entry.outbound, f"{Reason.POISON.value} {code} {text}"),),
        rules_version=version,
        reason=Reason.POISON.value,
        detail=f"{code}: {text}",
    )


def is_failure(move: ItemMove) -> bool:
    """Return whether the move ends its item without success, which writes to the failure file."""
    state = TaskState(move.to.value)
    return state in FINAL and state not in (TaskState.SUCCEEDED, TaskState.CANCELLED)


def failure_records(
    running: RunningRuleSet, moves: Sequence[ItemMove], now: datetime
) -> list[FailureRecord]:
    """Return the records of the failure file for the moves that are a failure."""
    records = []
    for move in moves:
        if not is_failure(move):
            continue
        item = move.entry.item if move.item is None else move.item
        result = item.get("task_result")
        status = "" if result is None else str(result)[:100]
        records.append(failure_record(move, slug=running.slug, status=status, now=now))
    return records
