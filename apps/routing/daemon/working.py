"""What a router does with a batch, from its inbound to the ack, and with items that it has claimed.

An exception leaves nothing undone: what the ledger does not have goes back to the inbound,
and what it has comes again when its lease is over.
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

from apps.routing.daemon.lines import InLine
from apps.routing.daemon.results import Results
from apps.routing.daemon.sending import LEASE_SECONDS, Piece, Sender, dead, failed_of, fails
from apps.routing.daemon.yard import BATCH, Running
from apps.routing.engine.failures import FailureFileError
from apps.routing.engine.inbounds.base import Taken
from apps.routing.engine.items import MAX_BYTES, Item, NoItem, read_item, write_item
from apps.routing.engine.life import status_of, uuid_of
from apps.routing.engine.messages import accepted
from apps.routing.engine.steps import Step, StepKind, step, writable
from apps.routing.engine.track import Entrance, Poison
from apps.routing.queries import Entry, find_items
from apps.routing.services import (
    Arrival,
    Brought,
    Move,
    Moved,
    Receipt,
    move_items,
    note_items,
    spare_items,
    take_in,
)
from apps.routing.states import ItemState
from apps.runtime.errors import DATABASE_AWAY
from yardkit import failpoints
from yardkit.backoff import Backoff
from yardkit.clock import Clock
from yardkit.guard import settle
from yardkit.outage import Outage

logger = logging.getLogger(__name__)

# A write that takes longer finds the database away, or did a moment ago.
LONG_SECONDS: Final = 1.0
# Tries to decide about results that other routers change at the same time.
ROUNDS: Final = 5
# Of what is no item so much is kept.
POISON_CHARACTERS: Final = 1024 * 1024
# An item begun this many times and never finished is taken for one that kills routers.
MOST_ATTEMPTS: Final = 10
# The key under which the text stands of what is no item.
RAW: Final = "raw"

T = TypeVar("T")


@dataclass(slots=True)
class _Sorted:
    """A batch, read."""

    arrivals: list[Arrival] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    poison: list[Arrival] = field(default_factory=list)
    # Why, for each.
    why: list[Poison] = field(default_factory=list)
    # Results of items that the ledger knows: the name, and what came.
    results: list[tuple[str, Item]] = field(default_factory=list)
    known: dict[str, Entry] = field(default_factory=dict)
    filtered: int = 0


class Work:
    """Routes items. Threads may share it; each uses the database connection of its own."""

    def __init__(self, clock: Clock, stopping: threading.Event) -> None:
        self._clock = clock
        self._stopping = stopping
        # When something was done last, by the clock that never goes back.
        self.active_at = clock.monotonic()
        self.outage = Outage(logger, "the ledger")
        # Since when each thread writes, by the clock that never goes back.
        self._writing: dict[int, float] = {}

    def is_stopping(self) -> bool:
        """Whether the current batch is to be finished."""
        return self._stopping.is_set()

    def has_long_write(self) -> bool:
        """Whether a thread still has to write down what it has done, for long already.

        The leases of what it has may be over.
        """
        before = self._clock.monotonic() - LONG_SECONDS
        return any(since <= before for since in list(self._writing.values()))

    def take(self, running: Running, line: InLine) -> int:
        """Take a batch of this inbound and do all that it needs; how many items it had.

        0, too, where they go back because their project's failure file cannot be written.
        """
        # Alone, those go on that need no line of the file.
        is_alone = self.outage.lasting or (running.failures is not None and running.failures.rests)
        most = 1 if is_alone else BATCH
        taken = line.inbound.take(most, 0)
        if not taken:
            return 0
        self.active_at = self._clock.monotonic()
        line.taken += len(taken)
        handles = [each.handle for each in taken]
        try:
            failpoints.hit("router.taken")
            pieces = self._take_in(running, line, taken)
        except FailureFileError:
            line.inbound.back(handles)
            return 0
        except BaseException:
            line.inbound.back(handles)
            raise
        try:
            failpoints.hit("router.received")
            self.route(running, pieces)
        finally:
            # The ledger has them: what failed now is claimed when the lease is over.
            line.inbound.ack(handles)
        failpoints.hit("router.acked")
        self.active_at = self._clock.monotonic()
        return len(taken)

    def route(self, running: Running, pieces: list[Piece]) -> None:
        """Carry out what was decided, and write it down."""
        if not pieces:
            return
        sender = Sender(running, self._clock, self.is_stopping)
        moves = sender.carry_out(pieces)
        self.write(running, moves)
        failpoints.hit("router.moved")

    def decided(self, running: Running, entry: Entry, decide: Callable[[], T]) -> T | None:
        """The decision about one item; None when a defect of ours makes it impossible."""
        try:
            return decide()
        except Exception as error:
            logger.exception("item %s cannot be decided about", entry.task_uuid)
            text = f"{type(error).__name__}: {error}"
            self.write(running, [dead(entry, "defect", text, running.version, self._clock.now())])
            return None

    def write(self, running: Running, moves: Sequence[Move]) -> Moved:
        """Make these moves, however long the database is away; failures are written down first.

        Where the failure file cannot be written, what needs it stays as it is, and comes again
        when its lease is over. Raises what is away when the router is to stop: nobody was told of
        these moves.
        """
        failed = [] if running.failures is None else [move for move in moves if fails(move)]
        if not failed:
            return self._insist(partial(self._write, running, moves))
        # The others may have been sent, and would be sent again when their lease is over.
        others = [move for move in moves if not fails(move)]
        first = self._insist(partial(self._write, running, others))
        try:
            then = self._insist(partial(self._write, running, failed))
        except FailureFileError:
            spared = [move.entry.id for move in failed if move.to != ItemState.DEAD]
            self._insist(partial(spare_items, ids=spared))
            return first
        return Moved(first.entries | then.entries, first.beaten + then.beaten)

    def _write(self, running: Running, moves: Sequence[Move]) -> Moved:
        now = self._clock.now()
        self._write_failures(running, moves)
        return move_items(moves=moves, now=now)

    def _write_failures(self, running: Running, moves: Sequence[Move]) -> None:
        if running.failures is not None and any(map(fails, moves)):
            running.failures.write(failed_of(running, moves, self._clock.now()))

    def _insist(self, what: Callable[[], T]) -> T:
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
        """Log the beginning and the end of an outage of the database."""
        if error is None:
            self.outage.recovered()
            return
        # A server that restarted leaves a connection that only fails.
        connection.close()
        self.outage.failed(error)

    # --- taking in --------------------------------------------------------------------------------

    def _take_in(self, running: Running, line: InLine, taken: list[Taken]) -> list[Piece]:
        """Write down what has come; returns what is to be sent, parked or ended."""
        entrance = running.track.entrances[line.rule.name]
        pieces: list[Piece] = []

        def take_in_all(part: Sequence[Taken]) -> None:
            pieces.extend(self._receive(running, line, self._sorted(running, line, entrance, part)))

        def reject(one: Taken, error: Exception) -> None:
            logger.error("%s of %s cannot be taken in", one.where, line.rule.name)
            batch = _Sorted()
            poison = Poison("defect", f"{type(error).__name__}: {error}"[:300])
            self._poisoned(batch, running, line, one, poison)
            self._receive(running, line, batch)

        settle(taken, take_in_all, reject, passing=(*DATABASE_AWAY, FailureFileError))
        return pieces

    def _sorted(
        self, running: Running, line: InLine, entrance: Entrance, taken: Sequence[Taken]
    ) -> _Sorted:
        batch = _Sorted()
        read: list[tuple[Taken, Item]] = []
        named: dict[int, str] = {}
        for each in taken:
            try:
                item = entrance.read(each.raw)
            except Poison as poison:
                self._poisoned(batch, running, line, each, poison)
                continue
            if status_of(item) is not None and (name := uuid_of(item)) is not None:
                named[len(read)] = name
            read.append((each, item))
        if named:
            batch.known = find_items(project=running.project, task_uuids=named.values())
        steps = _converted(entrance, self._clock.now())
        for number, (each, item) in enumerate(read):
            name = named.get(number, "")
            if name in batch.known:
                batch.results.append((name, item))
            elif entrance.accepts(item):
                # As the decision about it keeps it, or it would be written a second time then.
                item = accepted(item)
                batch.items.append(item)
                batch.arrivals.append(
                    Arrival(
                        project=running.project,
                        inbound=line.rule.name,
                        item=item,
                        identity=each.identity,
                        redelivered=each.redelivered,
                        rules_version=running.version,
                        steps=steps,
                    )
                )
            else:
                batch.filtered += 1
        return batch

    def _poisoned(
        self, batch: _Sorted, running: Running, line: InLine, taken: Taken, poison: Poison
    ) -> None:
        batch.why.append(poison)
        batch.poison.append(
            Arrival(
                project=running.project,
                inbound=line.rule.name,
                item=kept_of_poison(taken.raw),
                identity=taken.identity,
                rules_version=running.version,
            )
        )

    def _receive(self, running: Running, line: InLine, batch: _Sorted) -> list[Piece]:
        now = self._clock.now()
        sender = Sender(running, self._clock, self.is_stopping)
        results = Results(running, sender, batch.results, batch.known)
        brought = Brought(
            project=running.project,
            inbound=line.rule.name,
            arrivals=batch.arrivals,
            poison=batch.poison,
            moves=results.moves,
            notes=results.notes,
            results=len(batch.results),
            filtered=batch.filtered,
        )

        def ends_as(receipts: list[Receipt]) -> list[Move]:
            ends = [
                dead(receipt.entry, why.code, str(why), running.version, now)
                for receipt, why in zip(receipts, batch.why, strict=True)
                if receipt.held
            ]
            self._write_failures(running, ends)
            return ends

        self._write_failures(running, results.moves)
        done = take_in(brought=brought, ends_as=ends_as, now=now, lease_seconds=LEASE_SECONDS)
        self.note_outage(None)
        line.filtered += batch.filtered
        line.poison += done.poison
        pieces = results.onward(done.moved)
        for receipt, item in zip(done.receipts, batch.items, strict=True):
            if not receipt.held:
                continue
            decide = partial(running.life.decide, item, None)
            decision = self.decided(running, receipt.entry, decide)
            if decision is not None:
                pieces.append(Piece(receipt.entry, decision, sender.way(decision), item))
        return self._later_results(running, sender, results.pending(done.moved), pieces)

    def _later_results(
        self,
        running: Running,
        sender: Sender,
        pending: list[tuple[str, Item]],
        pieces: list[Piece],
    ) -> list[Piece]:
        """The second result of an item, and those that another router was quicker with.

        ``pieces`` are what is in hand; returns what still is, with what has come to it.
        """
        in_vain = 0
        while pending and in_vain < ROUNDS:
            names = [name for name, _ in pending]
            known = self._insist(partial(find_items, project=running.project, task_uuids=names))
            results = Results(running, sender, pending, known)
            moved = self._insist(partial(self._write, running, results.moves))
            self._insist(partial(note_items, notes=results.notes))
            # A later result may have ended what an earlier one wanted to have sent again.
            pieces = [each for each in pieces if each.entry.id not in moved.entries]
            pieces += results.onward(moved)
            left = results.pending(moved)
            in_vain = in_vain + 1 if len(left) == len(pending) else 0
            pending = left
        if pending:
            logger.error("%d results find their items changed each time", len(pending))
        return pieces


def kept_of_poison(raw: bytes) -> Item:
    """What a person finds of it: the object that it is, else its text as it came."""
    try:
        return read_item(raw)
    except NoItem:
        text = writable(raw.decode("utf-8", "replace"), POISON_CHARACTERS)
    # Some characters are written as six: what is kept is an item again.
    while (size := len(write_item({RAW: text}))) > MAX_BYTES:
        text = text[: len(text) * MAX_BYTES // size - len(RAW)]
    return {RAW: text}


def _converted(entrance: Entrance, now: datetime) -> tuple[Step, ...]:
    names = ", ".join(convert.cls for convert in entrance.rule.convert)
    return (step(now, StepKind.CONVERTED, "", names),) if names else ()
