"""From decisions to moves: items are sent, parked or ended, in batches for each outbound.

Nothing here is written to the ledger: what was sent is a move that the caller still has to make.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apps.routing.daemon.lines import Lane, send_together
from apps.routing.daemon.yard import BATCH, Running
from apps.routing.engine.failures import Failed
from apps.routing.engine.messages import TASK_PARAMS, message
from apps.routing.engine.outbounds.base import Outcome, Sent, Verdict
from apps.routing.engine.outcomes import FINAL, TEXTS, Action, Decision, Reason, State
from apps.routing.engine.steps import Step, StepKind, step
from apps.routing.queries import Entry
from apps.routing.services import Move
from apps.routing.states import ItemState
from yardkit import failpoints
from yardkit.clock import Clock

logger = logging.getLogger(__name__)

# What waits for room or for a target is found by its outbound, and not by its time; nobody need
# pass over it among those whose time has come.
PARKED_SECONDS: Final = 365 * 24 * 3600.0
# Longer than a batch may take; after it the items of a dead router are claimed by another.
LEASE_SECONDS: Final = 30.0
# Targets that do not answer cost time; what is left of a batch then waits, so that no lease ends.
MOST_SECONDS: Final = 10.0

_STATES: Final = {state: ItemState(state.value) for state in State}
# The reason is in other steps.
_UNTOLD: Final = frozenset({Reason.ROOM})
_GROUNDS_OF_PARKING: Final = {
    Reason.QUEUE_FULL,
    Reason.OUTBOUND_DISABLED,
    Reason.RATE_LIMIT,
    Reason.TARGET_AWAY,
    Reason.IN_LINE,
    Reason.POSTPONED,
}


@dataclass(slots=True)
class Piece:
    """An item in the hands of the router, and what was decided about it."""

    entry: Entry
    decision: Decision
    # That the ledger does not have yet.
    steps: tuple[Step, ...] = ()
    # The item as the ledger has it; another one is written with the next move.
    written: object = None
    # It has waited for its turn: no item overtakes it.
    is_its_turn: bool = False
    # It has its token.
    has_token: bool = False
    # What the target said that did not take it.
    refusal: str = ""


class Sender:
    """Carries out the decisions of one batch, by one version of the rules."""

    def __init__(self, running: Running, clock: Clock, stopping: Callable[[], bool]) -> None:
        self._running = running
        self._clock = clock
        self._stopping = stopping
        self._now = clock.now()
        self._end = time.monotonic() + MOST_SECONDS
        self._told: dict[tuple[str, str, str], Step] = {}

    def carry_out(self, pieces: Iterable[Piece]) -> list[Move]:
        """Send what is to be sent; a move for each piece."""
        moves: list[Move] = []
        left = list(pieces)
        sent = False
        while left:
            lanes: dict[str, list[Piece]] = {}
            for piece in left:
                if piece.decision.action is Action.DISPATCH:
                    lanes.setdefault(piece.decision.outbound, []).append(piece)
                else:
                    moves.append(self.settled(piece))
            left = []
            servers: dict[Hashable, list[tuple[Lane, list[Piece]]]] = {}
            for name, group in lanes.items():
                lane = self._running.lanes[name]
                servers.setdefault(lane.server, []).append((lane, group))
            for groups in servers.values():
                left += self._send(groups, moves)
                sent = True
        if sent:
            failpoints.hit("router.sent")
        return moves

    def told(self, kind: StepKind, outbound: str = "", detail: str = "") -> Step:
        """A step of now; those of one batch that say the same are one."""
        key = (kind, outbound, detail)
        found = self._told.get(key)
        if found is None:
            found = self._told[key] = step(self._now, kind, outbound, detail)
        return found

    def way(self, decision: Decision) -> tuple[Step, ...]:
        """The step that says where it goes by this decision, and why."""
        reason = decision.reason
        if reason in _UNTOLD or decision.action not in (Action.DISPATCH, Action.HOLD):
            return ()
        if reason in _GROUNDS_OF_PARKING:
            return ()
        kind = StepKind.RETRIED if reason is Reason.RETRY else StepKind.MATCHED
        detail = reason.value if not decision.status else f"{reason.value} {decision.status}"
        return (self.told(kind, decision.outbound, detail),)

    # --- one outbound -----------------------------------------------------------------------------

    def _send(self, groups: list[tuple[Lane, list[Piece]]], moves: list[Move]) -> list[Piece]:
        """Send these to one server; what has become a move is added, the others returned."""
        admitted = [
            (lane, pieces)
            for lane, group in groups
            if (pieces := self._admitted(lane, group, moves))
        ]
        if not admitted:
            return []
        onward: list[Piece] = []
        batches = [(lane, self._messages(lane, pieces, moves)) for lane, pieces in admitted]
        outcomes = send_together([(lane, messages) for lane, (_, messages) in batches])
        for (lane, (pieces, _)), mine in zip(batches, outcomes, strict=True):
            onward += self._settle(lane, pieces, mine, moves)
        return onward

    def _settle(
        self, lane: Lane, group: list[Piece], outcomes: list[Outcome], moves: list[Move]
    ) -> list[Piece]:
        """What has become of a batch, as moves; what goes on elsewhere is returned."""
        onward: list[Piece] = []
        now = self._clock.now()
        due_at = now + timedelta(seconds=lane.rule.result_timeout_seconds)
        done = self.told(StepKind.DISPATCHED, lane.rule.name)
        for piece, outcome in zip(group, outcomes, strict=True):
            if outcome.verdict is Verdict.DELIVERED:
                said = done if not outcome.code else self._said(lane, outcome)
                moves.append(self._delivered(lane, piece, said, due_at))
            elif outcome.verdict is Verdict.AWAY:
                moves.append(self._parked(piece, Reason.TARGET_AWAY, outcome.reason))
            else:
                onward.append(self._refused(piece, outcome))
        return onward

    def _said(self, lane: Lane, outcome: Outcome) -> Step:
        """The step of a message that is delivered, and about which its target said something."""
        detail = f"{outcome.code} {outcome.reason}".rstrip()
        return self.told(StepKind.DISPATCHED, lane.rule.name, detail)

    def _admitted(self, lane: Lane, group: list[Piece], moves: list[Move]) -> list[Piece]:
        """Those that may go now; the others are parked."""
        if self._stopping() or time.monotonic() > self._end:
            lane.has_parked = True
            moves += [self._parked(piece, Reason.POSTPONED) for piece in group]
            return []
        away = lane.away
        if away or (lane.has_parked and lane.keeps_line):
            reason = Reason.TARGET_AWAY if away else Reason.IN_LINE
            moves += [self._parked(p, reason, away) for p in group if not p.is_its_turn]
            group = [piece for piece in group if piece.is_its_turn]
        if lane.rule.token_per_second <= 0:
            return group
        asking = [piece for piece in group if not piece.has_token]
        waits = lane.tokens.take([lane.scope_value(piece.decision.item) for piece in asking])
        late = {id(piece): wait for piece, wait in zip(asking, waits, strict=True) if wait > 0}
        if late:
            lane.has_parked = True
            # These waits are of one batch. Of a crowd each batch has its part of the tokens, or all
            # of it would come again and again, and nearly all in vain.
            crowd = max(1.0, lane.parked / BATCH) if lane.is_scoped else 1.0
            for piece in group:
                if id(piece) in late:
                    wait = min(late[id(piece)] * crowd, PARKED_SECONDS)
                    moves.append(self._parked(piece, Reason.RATE_LIMIT, wait=wait))
        return [piece for piece in group if id(piece) not in late]

    def _messages(
        self, lane: Lane, group: list[Piece], moves: list[Move]
    ) -> tuple[list[Piece], list[Sent]]:
        """The messages of these; a defect of ours costs one item and not its batch."""
        good, batch = [], []
        for piece in group:
            try:
                batch.append(self._sent(lane, piece))
            except Exception as error:
                logger.exception("item %s makes no message", piece.entry.task_uuid)
                text = f"{type(error).__name__}: {error}"
                moves.append(dead(piece.entry, "defect", text, self._running.version, self._now))
            else:
                good.append(piece)
        return good, batch

    def _sent(self, lane: Lane, piece: Piece) -> Sent:
        decision = piece.decision
        name = str(piece.entry.task_uuid)
        made = message(
            lane.rule,
            decision.item,
            uuid=name,
            counters=decision.counters,
            submit_time=self._now,
        )
        params = made[TASK_PARAMS] if lane.rule.task_params_wrapped else made
        return Sent(name, made, params["priority"], params["rt"])

    def _refused(self, piece: Piece, outcome: Outcome) -> Piece:
        """What becomes of a message that its target never takes."""
        decision = self._running.life.refused(piece.decision)
        at = piece.decision.outbound
        told = self.told(StepKind.NOT_MATCHED, at, f"{Reason.REFUSED.value} {outcome.reason}")
        steps = (*piece.steps, told, *self.way(decision))
        return Piece(piece.entry, decision, steps, piece.written, refusal=outcome.reason)

    # --- moves ------------------------------------------------------------------------------------

    def _delivered(self, lane: Lane, piece: Piece, done: Step, due_at: datetime) -> Move:
        decision = piece.decision
        counters = decision.counters
        waits = lane.expects_result
        steps = (*piece.steps, done)
        if not waits:
            steps = (*steps, self.told(StepKind.ENDED, lane.rule.name, Reason.DELIVERED.value))
        return Move(
            entry=piece.entry,
            to=ItemState.DISPATCHED if waits else ItemState.SUCCEEDED,
            due_at=due_at if waits else None,
            outbound=lane.rule.name,
            steps=steps,
            item=None if piece.written is decision.item else decision.item,
            routed_count=counters.routed_count,
            retry_times=counters.retry_times,
            group_retry_times=counters.group_retry_times,
            rules_version=self._running.version,
            reason=Reason.SENT.value if waits else Reason.DELIVERED.value,
        )

    def _parked(self, piece: Piece, reason: Reason, why: str = "", wait: float = 0.0) -> Move:
        outbound = piece.decision.outbound
        detail = why or TEXTS[reason] % {"outbound": outbound, "status": ""}
        told = f"{reason.value} {why}".rstrip()
        seconds = wait or PARKED_SECONDS
        return self._move(
            piece,
            State.PARKED,
            outbound,
            self._now + timedelta(seconds=seconds),
            (*piece.steps, self.told(StepKind.PARKED, outbound, told)),
            reason,
            detail,
        )

    def settled(self, piece: Piece) -> Move:
        """A move for what needs no sending: parked by the rules, or ended."""
        decision = piece.decision
        if decision.action is Action.HOLD:
            lane = self._running.lanes.get(decision.outbound)
            if lane is not None:
                lane.has_parked = True
            return self._parked(piece, decision.reason)
        why = decision.reason.value
        detail = f"{why} {decision.status}".rstrip()
        steps = piece.steps
        if decision.reason is Reason.NO_RULE:
            steps = (*steps, self.told(StepKind.NOT_MATCHED))
        last = self.told(StepKind.ENDED, decision.outbound, detail)
        return self._move(
            piece,
            decision.state,
            decision.outbound,
            None,
            (*steps, last),
            decision.reason,
            f"{decision.text} {piece.refusal}".rstrip(),
        )

    def _move(
        self,
        piece: Piece,
        state: State,
        outbound: str,
        due_at: datetime | None,
        steps: tuple[Step, ...],
        reason: Reason,
        detail: str,
    ) -> Move:
        decision = piece.decision
        return Move(
            entry=piece.entry,
            to=_STATES[state],
            due_at=due_at,
            outbound=outbound,
            steps=steps,
            item=None if piece.written is decision.item else decision.item,
            routed_count=decision.counters.routed_count,
            retry_times=decision.counters.retry_times,
            group_retry_times=decision.counters.group_retry_times,
            rules_version=self._running.version,
            reason=reason.value,
            detail=detail,
        )

    def retrying(self, piece: Piece, lease_seconds: float) -> Move:
        """Claim an item before it is sent again, so that no other router sends it too."""
        return self._move(
            piece,
            State.RETRYING,
            piece.decision.outbound,
            self._now + timedelta(seconds=lease_seconds),
            piece.steps,
            piece.decision.reason,
            piece.decision.text,
        )


def dead(entry: Entry, code: str, text: str, version: int, now: datetime) -> Move:
    """The move of an item that nothing can be done with."""
    return Move(
        entry=entry,
        to=ItemState.DEAD,
        steps=(step(now, StepKind.ENDED, entry.outbound, f"{Reason.POISON.value} {code} {text}"),),
        rules_version=version,
        reason=Reason.POISON.value,
        detail=f"{code}: {text}",
    )


def fails(move: Move) -> bool:
    """Whether it ends an item without success, so that the failure file has a line of it."""
    state = State(move.to.value)
    return state in FINAL and state not in (State.SUCCEEDED, State.CANCELLED)


def failed_of(running: Running, moves: Sequence[Move], now: datetime) -> list[Failed]:
    """The lines of the failure file for those moves that end an item without success."""
    found = []
    for move in moves:
        if not fails(move):
            continue
        item: Mapping[str, object] = move.entry.item if move.item is None else move.item
        status = item.get("task_result")
        found.append(
            Failed(
                task_uuid=str(move.entry.task_uuid),
                project=running.slug,
                inbound=move.entry.inbound,
                outbound=move.outbound or "",
                state=move.to.value,
                reason=move.reason,
                detail=move.detail,
                status="" if status is None else str(status)[:100],
                at=now,
                item=item,
            )
        )
    return found
