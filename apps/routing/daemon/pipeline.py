"""Pipeline of a batch from its inbound to the acknowledgement, and of claimed items to their moves.

After an exception no item is lost: messages that are not stored go back to the inbound, and stored
items are claimed again when their lease expires.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from django.db import connection

from apps.routing.daemon.channels import InboundChannel
from apps.routing.daemon.delivery import (
    LEASE_SECONDS,
    DecidedItem,
    Sender,
    dead_letter,
    failure_records,
    is_failure,
)
from apps.routing.daemon.results import ResultMoves
from apps.routing.daemon.rule_sets import BATCH, RunningRuleSet
from apps.routing.engine.failures import FailureFileError
from apps.routing.engine.inbounds.base import Taken
from apps.routing.engine.items import MAX_BYTES, Item, ItemError, read_item, write_item
from apps.routing.engine.life import status_of, uuid_of
from apps.routing.engine.messages import accepted
from apps.routing.engine.steps import Step, StepKind, step, writable
from apps.routing.engine.track import CompiledInbound, Malformed
from apps.routing.queries import LedgerEntry, find_items
from apps.routing.services import (
    Arrival,
    InboundBatch,
    ItemMove,
    MovedItems,
    Receipt,
    move_items,
    note_items,
    reset_attempts,
    store_batch,
)
from apps.routing.states import ItemState
from apps.runtime.errors import DATABASE_AWAY
from yardkit import failpoints
from yardkit.backoff import Backoff
from yardkit.clock import Clock
from yardkit.guard import settle
from yardkit.outage import Outage

logger = logging.getLogger(__name__)

# A write that takes longer is waiting for the database, or was a moment ago.
LONG_SECONDS: Final = 1.0
# Attempts to apply results whose items other routers move at the same time.
ROUNDS: Final = 5
# Stored part of a malformed message.
MALFORMED_CHARACTERS: Final = 1024 * 1024
# Attempts after which an item is dead-lettered, because it seems to crash routers.
MOST_ATTEMPTS: Final = 10
# Key of the text of a malformed message in the stored item.
RAW: Final = "raw"

T = TypeVar("T")


@dataclass(slots=True)
class _ReadBatch:
    """Parsed batch of an inbound."""

    arrivals: list[Arrival] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    malformed: list[Arrival] = field(default_factory=list)
    # Error of each malformed message.
    why: list[Malformed] = field(default_factory=list)
    # ResultMoves of known items: (task_uuid, result).
    results: list[tuple[str, Item]] = field(default_factory=list)
    known: dict[str, LedgerEntry] = field(default_factory=dict)
    filtered: int = 0


class RoutingPipeline:
    """Stores, routes and acknowledges batches.

    Thread-safe; each thread uses its own database connection.
    """

    def __init__(self, clock: Clock, stopping: threading.Event) -> None:
        self._clock = clock
        self._stopping = stopping
        # Time of the last work, in monotonic seconds.
        self.active_at = clock.monotonic()
        self.outage = Outage(logger, "the ledger")
        # Start of the current write of each thread, in monotonic seconds, by thread id.
        self._writing: dict[int, float] = {}

    def is_stopping(self) -> bool:
        """Return whether the router stops, so that no new work may start."""
        return self._stopping.is_set()

    def has_long_write(self) -> bool:
        """Return whether a thread has been trying to commit its moves for over a second.

        The leases of its items may have expired.
        """
        before = self._clock.monotonic() - LONG_SECONDS
        return any(since <= before for since in list(self._writing.values()))

    def take(self, running: RunningRuleSet, channel: InboundChannel) -> int:
        """Take a batch from an inbound and process it completely; return its number of messages.

        Returns 0 also when the batch goes back because the failure file cannot be written.
        """
        # One message at a time: those that need no line in the failure file are then processed.
        is_alone = self.outage.lasting or (running.failures is not None and running.failures.rests)
        most = 1 if is_alone else BATCH
        taken = channel.inbound.take(most, 0)
        if not taken:
            return 0
        self.active_at = self._clock.monotonic()
        channel.taken += len(taken)
        handles = [message.handle for message in taken]
        try:
            failpoints.hit("router.taken")
            decided_items = self._store_batch(running, channel, taken)
        except FailureFileError:
            channel.inbound.back(handles)
            return 0
        except BaseException:
            channel.inbound.back(handles)
            raise
        try:
            failpoints.hit("router.received")
            self.route(running, decided_items)
        finally:
            # All messages are stored; items whose routing failed are claimed after their lease.
            channel.inbound.ack(handles)
        failpoints.hit("router.acked")
        self.active_at = self._clock.monotonic()
        return len(taken)

    def route(self, running: RunningRuleSet, decided_items: list[DecidedItem]) -> None:
        """Carry out decisions, and commit the resulting moves."""
        if not decided_items:
            return
        sender = Sender(running, self._clock, self.is_stopping)
        moves = sender.carry_out(decided_items)
        self.write(running, moves)
        failpoints.hit("router.moved")

    def try_decide(
        self, running: RunningRuleSet, entry: LedgerEntry, decide: Callable[[], T]
    ) -> T | None:
        """Return the result of ``decide``; dead-letter the item and return None if it raises."""
        try:
            return decide()
        except Exception as error:
            logger.exception("decision failed: item=%s", entry.task_uuid)
            text = f"{type(error).__name__}: {error}"
            self.write(
                running, [dead_letter(entry, "defect", text, running.version, self._clock.now())]
            )
            return None

    def write(self, running: RunningRuleSet, moves: Sequence[ItemMove]) -> MovedItems:
        """Commit moves, with retries while the database is unreachable.

        Failed items are written to the failure file first. If it cannot be written, they keep their
        state and are claimed again when their lease expires. Raises the error of the database when
        the router stops before it is back.
        """
        failures = [] if running.failures is None else [move for move in moves if is_failure(move)]
        if not failures:
            return self._retry_during_outage(partial(self._write, running, moves))
        # The other items may have been sent: without their moves they would be sent again.
        others = [move for move in moves if not is_failure(move)]
        first = self._retry_during_outage(partial(self._write, running, others))
        try:
            then = self._retry_during_outage(partial(self._write, running, failures))
        except FailureFileError:
            spared = [move.entry.id for move in failures if move.to != ItemState.DEAD]
            self._retry_during_outage(partial(reset_attempts, ids=spared))
            return first
        return MovedItems(first.entries | then.entries, first.lost + then.lost)

    def _write(self, running: RunningRuleSet, moves: Sequence[ItemMove]) -> MovedItems:
        now = self._clock.now()
        self._write_failures(running, moves)
        return move_items(moves=moves, now=now)

    def _write_failures(self, running: RunningRuleSet, moves: Sequence[ItemMove]) -> None:
        if running.failures is not None and any(map(is_failure, moves)):
            running.failures.write(failure_records(running, moves, self._clock.now()))

    def _retry_during_outage(self, what: Callable[[], T]) -> T:
        backoff = Backoff()
        thread = threading.get_ident()
        self._writing[thread] = self._clock.monotonic()
        try:
            while True:
                try:
                    done = what()
                except DATABASE_AWAY as error:
                    self.note_outage(error)
                    if self._stopping.wait(backoff.seconds()):
                        raise
                else:
                    self.note_outage(None)
                    return done
        finally:
            del self._writing[thread]

    def note_outage(self, error: Exception | None) -> None:
        """Log the start of an outage of the database, or with None its end."""
        if error is None:
            self.outage.recovered()
            return
        # After a restart of the server the open connection never works again.
        connection.close()
        self.outage.failed(error)

    # --- storing a batch --------------------------------------------------------------------------

    def _store_batch(
        self, running: RunningRuleSet, channel: InboundChannel, taken: list[Taken]
    ) -> list[DecidedItem]:
        """Store a batch in the ledger; return its items with the decisions about them."""
        entrance = running.track.entrances[channel.rule.name]
        decided_items: list[DecidedItem] = []

        def store_all(part: Sequence[Taken]) -> None:
            decided_items.extend(
                self._receive(running, channel, self._read(running, channel, entrance, part))
            )

        def reject(message: Taken, error: Exception) -> None:
            logger.error(
                "message not stored: inbound=%s place=%s", channel.rule.name, message.where
            )
            batch = _ReadBatch()
            poison = Malformed("defect", f"{type(error).__name__}: {error}"[:300])
            self._add_malformed(batch, running, channel, message, poison)
            self._receive(running, channel, batch)

        settle(taken, store_all, reject, passing=(*DATABASE_AWAY, FailureFileError))
        return decided_items

    def _read(
        self,
        running: RunningRuleSet,
        channel: InboundChannel,
        entrance: CompiledInbound,
        taken: Sequence[Taken],
    ) -> _ReadBatch:
        batch = _ReadBatch()
        read: list[tuple[Taken, Item]] = []
        named: dict[int, str] = {}
        for message in taken:
            try:
                item = entrance.read(message.raw)
            except Malformed as poison:
                self._add_malformed(batch, running, channel, message, poison)
                continue
            if status_of(item) is not None and (name := uuid_of(item)) is not None:
                named[len(read)] = name
            read.append((message, item))
        if named:
            batch.known = find_items(project=running.project, task_uuids=named.values())
        steps = _converted(entrance, self._clock.now())
        for number, (message, item) in enumerate(read):
            name = named.get(number, "")
            if name in batch.known:
                batch.results.append((name, item))
            elif entrance.accepts(item):
                # Stored in the form that the decision uses; otherwise it would be written twice.
                item = accepted(item)
                batch.items.append(item)
                batch.arrivals.append(
                    Arrival(
                        project=running.project,
                        inbound=channel.rule.name,
                        item=item,
                        identity=message.identity,
                        redelivered=message.redelivered,
                        rules_version=running.version,
                        steps=steps,
                    )
                )
            else:
                batch.filtered += 1
        return batch

    def _add_malformed(
        self,
        batch: _ReadBatch,
        running: RunningRuleSet,
        channel: InboundChannel,
        taken: Taken,
        poison: Malformed,
    ) -> None:
        batch.why.append(poison)
        batch.malformed.append(
            Arrival(
                project=running.project,
                inbound=channel.rule.name,
                item=item_of_malformed(taken.raw),
                identity=taken.identity,
                rules_version=running.version,
            )
        )

    def _receive(
        self, running: RunningRuleSet, channel: InboundChannel, read: _ReadBatch
    ) -> list[DecidedItem]:
        now = self._clock.now()
        sender = Sender(running, self._clock, self.is_stopping)
        results = ResultMoves(running, sender, read.results, read.known)
        batch = InboundBatch(
            project=running.project,
            inbound=channel.rule.name,
            arrivals=read.arrivals,
            malformed=read.malformed,
            moves=results.moves,
            notes=results.notes,
            results=len(read.results),
            filtered=read.filtered,
        )

        def end_malformed(receipts: list[Receipt]) -> list[ItemMove]:
            ends = [
                dead_letter(receipt.entry, why.code, str(why), running.version, now)
                for receipt, why in zip(receipts, read.why, strict=True)
                if receipt.held
            ]
            self._write_failures(running, ends)
            return ends

        self._write_failures(running, results.moves)
        done = store_batch(
            batch=batch, end_malformed=end_malformed, now=now, lease_seconds=LEASE_SECONDS
        )
        self.note_outage(None)
        channel.filtered += read.filtered
        channel.malformed += done.malformed
        decided_items = results.to_send_again(done.moved)
        for receipt, item in zip(done.receipts, read.items, strict=True):
            if not receipt.held:
                continue
            decide = partial(running.life.decide, item, None)
            decision = self.try_decide(running, receipt.entry, decide)
            if decision is not None:
                decided_items.append(
                    DecidedItem(receipt.entry, decision, sender.routing_step(decision), item)
                )
        return self._later_results(running, sender, results.pending(done.moved), decided_items)

    def _later_results(
        self,
        running: RunningRuleSet,
        sender: Sender,
        pending: list[tuple[str, Item]],
        decided_items: list[DecidedItem],
    ) -> list[DecidedItem]:
        """Apply pending results: second results of an item, and results whose moves were lost.

        Returns ``decided_items`` without those that a later result has moved, and with new ones to
        send again.
        """
        failed_rounds = 0
        while pending and failed_rounds < ROUNDS:
            names = [name for name, _ in pending]
            known = self._retry_during_outage(
                partial(find_items, project=running.project, task_uuids=names)
            )
            results = ResultMoves(running, sender, pending, known)
            moved = self._retry_during_outage(partial(self._write, running, results.moves))
            self._retry_during_outage(partial(note_items, notes=results.notes))
            # A later result may have ended an item that an earlier one wanted to send again.
            decided_items = [d for d in decided_items if d.entry.id not in moved.entries]
            decided_items += results.to_send_again(moved)
            left = results.pending(moved)
            failed_rounds = failed_rounds + 1 if len(left) == len(pending) else 0
            pending = left
        if pending:
            logger.error("results not applied, their items keep changing: count=%d", len(pending))
        return decided_items


def item_of_malformed(raw: bytes) -> Item:
    """Return the item under which a malformed message is stored.

    That is its JSON object if it is one, else its text under the key ``raw``.
    """
    try:
        return read_item(raw)
    except ItemError:
        text = writable(raw.decode("utf-8", "replace"), MALFORMED_CHARACTERS)
    # JSON escapes some characters as six, so shorten the text until it fits into an item.
    while (size := len(write_item({RAW: text}))) > MAX_BYTES:
        text = text[: len(text) * MAX_BYTES // size - len(RAW)]
    return {RAW: text}


def _converted(entrance: CompiledInbound, now: datetime) -> tuple[Step, ...]:
    names = ", ".join(convert.cls for convert in entrance.rule.convert)
    return (step(now, StepKind.CONVERTED, "", names),) if names else ()
