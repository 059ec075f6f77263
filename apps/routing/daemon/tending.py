"""What waits in the ledger: taken over when its time has come, offered when there is room."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from django.db import connection

from apps.routing.daemon.lines import FIRST_PROBE_SECONDS, Lane
from apps.routing.daemon.sending import LEASE_SECONDS, Piece, Sender, dead
from apps.routing.daemon.working import MOST_ATTEMPTS, Work
from apps.routing.daemon.yard import BATCH, Running, Yard, parked_of
from apps.routing.engine.items import Item
from apps.routing.engine.outcomes import Action, Decision, State
from apps.routing.engine.steps import StepKind
from apps.routing.models import RoutedItem
from apps.routing.queries import Entry, known_of
from apps.routing.services import Move, claim_due, claim_parked
from apps.routing.states import ItemState
from yardkit.clock import Clock
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

CLAIM_SECONDS: Final = 0.25
# How often it is looked whether items are parked that this process does not know of.
PARKED_SECONDS: Final = 1.0
# The same for outbounds that are disabled or gone, once all their items were asked of the rules.
STRANDED_SECONDS: Final = 5.0
# Seconds between two looks for room, and for items that wait for tokens.
LOOK_SECONDS: Final = 0.5
# Longer than a thread that finds the database away waits before it tries again, and then writes.
PATIENCE_SECONDS: Final = 15.0
# A router has begun with it and not finished.
_ALONE_FROM: Final = 2
_DUE: Final = (ItemState.RECEIVED, ItemState.RETRYING, ItemState.DISPATCHED)


class Tending:
    """The turns of what waits. Its methods are called by one thread each."""

    def __init__(self, yard: Yard, work: Work, clock: Clock) -> None:
        self._yard = yard
        self._work = work
        self._clock = clock
        self.timers = Timers(clock.monotonic)
        # Outbounds that are disabled or gone, by project, version and name: when it is looked again
        # whether items wait for them that this version was not asked about.
        self._stranded: dict[tuple[int, int, str], float] = {}
        self._tending, self._probing = _Patience(work, clock), _Patience(work, clock)

    def turn(self) -> bool:
        """One round; whether there was anything to do."""
        if self._tending.waits():
            return False
        busy = False
        if self.timers.due("claim", CLAIM_SECONDS):
            found = self._claim()
            if found == BATCH:
                self.timers.hasten("claim")
            busy = found > 0
        if self.timers.due("parked", PARKED_SECONDS):
            busy |= self._look_for_parked()
        for project in self._yard.projects():
            with self._yard.using(project) as running:
                if running is not None:
                    busy |= self._offer(running)
        if busy:
            self._work.active_at = self._clock.monotonic()
        return busy

    def probe(self) -> bool:
        """Try targets that are away, where that is due: this may wait for them."""
        if self._probing.waits():
            return False
        busy = False
        for project in self._yard.projects():
            with self._yard.using(project) as running:
                for lane in running.lanes.values() if running is not None else ():
                    if running is not None and self._is_probed(lane):
                        busy = True
                        self._probe(running, lane)
        return busy

    # --- whose time has come ----------------------------------------------------------------------

    def _claim(self) -> int:
        projects = self._yard.projects()
        if not projects:
            return 0
        entries = claim_due(
            now=self._clock.now(),
            lease_seconds=LEASE_SECONDS,
            limit=BATCH,
            projects=projects,
            states=_DUE,
        )
        by_project: dict[int, list[Entry]] = {}
        for entry in entries:
            by_project.setdefault(entry.project, []).append(entry)
        for project, found in by_project.items():
            with self._yard.using(project) as running:
                if running is not None:
                    self._go_on(running, found)
        return len(entries)

    def _go_on(self, running: Running, entries: list[Entry]) -> None:
        """Items of routers that have gone, of the web, and such as got no result in time."""
        # What failed before may fail again, and then it must take no others along.
        first = [entry for entry in entries if entry.attempts <= _ALONE_FROM]
        self._go_on_together(running, first)
        for entry in entries:
            if entry.attempts > _ALONE_FROM:
                self._go_on_together(running, [entry])

    def _go_on_together(self, running: Running, entries: list[Entry]) -> None:
        sender = Sender(running, self._clock, self._work.is_stopping)
        pieces: list[Piece] = []
        first: list[Move] = []
        again: dict[int, Piece] = {}
        for entry in entries:
            if entry.attempts > MOST_ATTEMPTS:
                text = f"{entry.attempts} routers have begun with it, and none got anywhere"
                first.append(dead(entry, "attempts", text, running.version, self._clock.now()))
                continue
            decided = self._work.decided(running, entry, partial(_decide, running, entry))
            if decided is None:
                continue
            decision, item = decided
            told = sender.way(decision)
            if entry.state == ItemState.DISPATCHED:
                told = (sender.told(StepKind.OVERDUE, entry.outbound), *told)
            piece = Piece(entry, decision, told, item)
            if entry.state == ItemState.DISPATCHED and decision.action is Action.DISPATCH:
                again[entry.id] = piece
                first.append(sender.retrying(piece, LEASE_SECONDS))
            else:
                pieces.append(piece)
        moved = self._work.write(running, first)
        pieces += [
            Piece(moved.entries[pk], piece.decision, (), piece.decision.item)
            for pk, piece in again.items()
            if pk in moved.entries
        ]
        self._work.route(running, pieces)

    # --- what is parked ---------------------------------------------------------------------------

    def _look_for_parked(self) -> bool:
        """Which outbounds have parked items, of whichever router."""
        busy = False
        for project, totals in parked_of(self._yard.projects()).items():
            with self._yard.using(project) as running:
                if running is None:
                    continue
                for name, lane in running.lanes.items():
                    # Only ever set here: what is parked meanwhile is not in these counts yet.
                    lane.has_parked |= name in totals
                    lane.parked = totals.get(name, 0)
                for name in sorted(totals.keys() - running.lanes.keys()):
                    busy |= self._strand(running, name)
        return busy

    def _strand(self, running: Running, name: str) -> bool:
        """Items for an outbound that is disabled or gone are asked of each version once."""
        key = running.project, running.version, name
        now = self._clock.monotonic()
        if now < self._stranded.get(key, 0.0):
            return False
        entries = self._claim_parked(running, name, BATCH, not_by=running.version)
        if len(entries) < BATCH:
            self._stranded = {
                known: at
                for known, at in self._stranded.items()
                if known[0] != running.project or known[1] == running.version
            }
            # A batch by the rules before may still park some.
            self._stranded[key] = now + STRANDED_SECONDS
        else:
            self.timers.hasten("parked")
        self._offer_these(running, entries)
        return bool(entries)

    def _offer(self, running: Running) -> bool:
        now = self._clock.monotonic()
        busy = False
        for lane in list(running.lanes.values()):
            if lane.has_parked and not lane.away and now >= lane.look_at:
                busy |= self._offer_lane(running, lane)
        return busy

    def _offer_lane(self, running: Running, lane: Lane) -> bool:
        """Send what is parked for this outbound as far as it has room and tokens."""
        most = lane.room(BATCH)
        lane.look_at = self._clock.monotonic() + LOOK_SECONDS
        tokens = lane.rule.token_per_second > 0 and not lane.is_scoped
        if most and tokens:
            # A token that is not used is lost to the next items.
            most = self._parked_for(running, lane, most)
            waits = lane.tokens.take([lane.scope_value(None)] * most)
            granted = sum(1 for wait in waits if wait == 0)
            if granted < most:
                lane.look_at = self._clock.monotonic() + min(waits[granted], 1.0)
            lane.has_parked = most > 0
            most = granted
        if not most:
            return False
        entries = self._claim_parked(running, lane.rule.name, most, due_only=lane.is_scoped)
        if len(entries) < most and not lane.is_scoped and not tokens:
            # The flag is set again when another item is parked.
            lane.has_parked = False
        if len(entries) == (BATCH if tokens else most):
            lane.look_at = 0.0
        self._offer_these(running, entries, has_token=tokens)
        return bool(entries)

    def _parked_for(self, running: Running, lane: Lane, most: int) -> int:
        rows = RoutedItem.objects.parked(running.project, lane.rule.name)
        return rows.values("id")[:most].count()

    def _is_probed(self, lane: Lane) -> bool:
        return bool(lane.away) and self._clock.monotonic() >= lane.probe_at

    def _probe(self, running: Running, lane: Lane) -> None:
        """The first item that waits shows whether the target is back."""
        # It may get no token, and then the target's state stays unknown.
        lane.probe_at = self._clock.monotonic() + FIRST_PROBE_SECONDS
        entries = self._claim_parked(running, lane.rule.name, 1)
        if entries:
            self._offer_these(running, entries)
        else:
            # Another router was quicker, and so it was taken: the next item shows it.
            lane.is_back()

    def _claim_parked(
        self,
        running: Running,
        outbound: str,
        limit: int,
        *,
        not_by: int | None = None,
        due_only: bool = False,
    ) -> list[Entry]:
        return claim_parked(
            project=running.project,
            outbound=outbound,
            now=self._clock.now(),
            lease_seconds=LEASE_SECONDS,
            limit=limit,
            not_by=not_by,
            due_only=due_only,
        )

    def _offer_these(
        self, running: Running, entries: Iterable[Entry], *, has_token: bool = False
    ) -> None:
        sender = Sender(running, self._clock, self._work.is_stopping)
        pieces = []
        for entry in entries:
            decided = self._work.decided(running, entry, partial(_decide, running, entry))
            if decided is None:
                continue
            decision, item = decided
            is_its_turn = decision.outbound == entry.outbound
            pieces.append(
                Piece(
                    entry,
                    decision,
                    sender.way(decision),
                    item,
                    is_its_turn=is_its_turn,
                    has_token=has_token and is_its_turn,
                )
            )
        self._work.route(running, pieces)


class _Patience:
    """Has a thread claim nothing while others write down what they did before the database went.

    The leases of what they have sent are over by then, and it would be sent again. For one thread.
    """

    def __init__(self, work: Work, clock: Clock) -> None:
        self._work = work
        self._clock = clock
        # Since when the database is there and others still write.
        self._since: float | None = None

    def waits(self) -> bool:
        """Whether nothing is to be claimed now. Raises what is away."""
        since, self._since = self._since, None
        if not self._work.has_long_write():
            return False
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        now = self._clock.monotonic()
        self._since = now if since is None else since
        # A write that finds no end by itself does not keep the others from theirs.
        return now < self._since + PATIENCE_SECONDS


def _decide(running: Running, entry: Entry) -> tuple[Decision, Item]:
    """What happens to it next, and the item as the ledger has it."""
    if entry.state == ItemState.RECEIVED:
        item = entry.item
        return running.life.decide(item, None), item
    if entry.state == ItemState.DISPATCHED:
        known = known_of(entry)
        return running.life.timed_out(known), known.item
    # Where one that is to be sent again goes is decided; the rest is as with a parked one.
    known = replace(known_of(entry), state=State.PARKED)
    return running.life.offer(known), known.item
