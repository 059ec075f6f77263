"""Process items that wait in the ledger: claim due ones, send parked ones when there is room."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from django.db import connection

from apps.routing.daemon.channels import FIRST_PROBE_SECONDS, OutboundChannel
from apps.routing.daemon.delivery import LEASE_SECONDS, DecidedItem, Sender, dead_letter
from apps.routing.daemon.pipeline import MOST_ATTEMPTS, RoutingPipeline
from apps.routing.daemon.rule_sets import BATCH, RuleSetRuntime, RunningRuleSet, count_parked
from apps.routing.engine.items import Item
from apps.routing.engine.outcomes import Action, Decision, TaskState
from apps.routing.engine.steps import StepKind
from apps.routing.models import RoutedItem
from apps.routing.queries import LedgerEntry, known_item
from apps.routing.services import ItemMove, claim_due, claim_parked
from apps.routing.states import ItemState
from yardkit.clock import Clock
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

CLAIM_SECONDS: Final = 0.25
# Interval of looking for items that other processes have parked.
PARKED_SECONDS: Final = 1.0
# The same for disabled or removed outbounds, after the rules decided about all their items.
STRANDED_SECONDS: Final = 5.0
# Interval of checking an outbound with parked items for room and tokens.
LOOK_SECONDS: Final = 0.5
# Pause of claiming after an outage: longer than the back-off of a thread that still has to write.
PATIENCE_SECONDS: Final = 15.0
# With more attempts than this, an item is processed alone: it may have crashed a router.
_ALONE_FROM: Final = 2
_DUE: Final = (ItemState.RECEIVED, ItemState.RETRYING, ItemState.DISPATCHED)


class BacklogProcessor:
    """Claims due items and sends parked ones.

    Call ``turn`` from one thread and ``probe`` from one other thread.
    """

    def __init__(self, rule_sets: RuleSetRuntime, pipeline: RoutingPipeline, clock: Clock) -> None:
        self._rule_sets = rule_sets
        self._pipeline = pipeline
        self._clock = clock
        self.timers = Timers(clock.monotonic)
        # Disabled or removed outbounds with parked items, by (project, rules version, name): when
        # to look again for items that this version has not decided about (monotonic seconds).
        self._stranded: dict[tuple[int, int, str], float] = {}
        self._claim_guard, self._probe_guard = (
            _LongWriteGuard(pipeline, clock),
            _LongWriteGuard(pipeline, clock),
        )

    def turn(self) -> bool:
        """Claim due items and send parked ones; return whether there was any work."""
        if self._claim_guard.waits():
            return False
        busy = False
        if self.timers.due("claim", CLAIM_SECONDS):
            count = self._claim()
            if count == BATCH:
                self.timers.hasten("claim")
            busy = count > 0
        if self.timers.due("parked", PARKED_SECONDS):
            busy |= self._look_for_parked()
        for project in self._rule_sets.projects():
            with self._rule_sets.using(project) as running:
                if running is not None:
                    busy |= self._offer(running)
        if busy:
            self._pipeline.active_at = self._clock.monotonic()
        return busy

    def probe(self) -> bool:
        """Try unreachable targets whose pause is over; return whether there were any.

        This may block until the targets time out.
        """
        if self._probe_guard.waits():
            return False
        busy = False
        for project in self._rule_sets.projects():
            with self._rule_sets.using(project) as running:
                for channel in running.outbounds.values() if running is not None else ():
                    if running is not None and self._is_probed(channel):
                        busy = True
                        self._probe(running, channel)
        return busy

    # --- due items --------------------------------------------------------------------------------

    def _claim(self) -> int:
        projects = self._rule_sets.projects()
        if not projects:
            return 0
        entries = claim_due(
            now=self._clock.now(),
            lease_seconds=LEASE_SECONDS,
            limit=BATCH,
            projects=projects,
            states=_DUE,
        )
        by_project: dict[int, list[LedgerEntry]] = {}
        for entry in entries:
            by_project.setdefault(entry.project, []).append(entry)
        for project, claimed in by_project.items():
            with self._rule_sets.using(project) as running:
                if running is not None:
                    self._process(running, claimed)
        return len(entries)

    def _process(self, running: RunningRuleSet, entries: list[LedgerEntry]) -> None:
        """Process claimed items: of dead routers, of web processes, or without a result in time."""
        # An item that failed before may fail again, and must not take a whole batch with it.
        first = [entry for entry in entries if entry.attempts <= _ALONE_FROM]
        self._process_together(running, first)
        for entry in entries:
            if entry.attempts > _ALONE_FROM:
                self._process_together(running, [entry])

    def _process_together(self, running: RunningRuleSet, entries: list[LedgerEntry]) -> None:
        sender = Sender(running, self._clock, self._pipeline.is_stopping)
        decided_items: list[DecidedItem] = []
        first: list[ItemMove] = []
        again: dict[int, DecidedItem] = {}
        for entry in entries:
            if entry.attempts > MOST_ATTEMPTS:
                text = f"{entry.attempts} attempts to process it, and none finished"
                first.append(
                    dead_letter(entry, "attempts", text, running.version, self._clock.now())
                )
                continue
            decided = self._pipeline.try_decide(running, entry, partial(_decide, running, entry))
            if decided is None:
                continue
            decision, item = decided
            steps = sender.routing_step(decision)
            if entry.state == ItemState.DISPATCHED:
                steps = (sender.step(StepKind.OVERDUE, entry.outbound), *steps)
            decided_item = DecidedItem(entry, decision, steps, item)
            if entry.state == ItemState.DISPATCHED and decision.action is Action.DISPATCH:
                again[entry.id] = decided_item
                first.append(sender.move_to_retrying(decided_item, LEASE_SECONDS))
            else:
                decided_items.append(decided_item)
        moved = self._pipeline.write(running, first)
        decided_items += [
            DecidedItem(moved.entries[pk], decided_item.decision, (), decided_item.decision.item)
            for pk, decided_item in again.items()
            if pk in moved.entries
        ]
        self._pipeline.route(running, decided_items)

    # --- parked items -----------------------------------------------------------------------------

    def _look_for_parked(self) -> bool:
        """Update the counts of items that all routers have parked for each outbound."""
        busy = False
        for project, totals in count_parked(self._rule_sets.projects()).items():
            with self._rule_sets.using(project) as running:
                if running is None:
                    continue
                for name, channel in running.outbounds.items():
                    # Set here, never cleared: items parked meanwhile are not in these counts yet.
                    channel.has_parked |= name in totals
                    channel.parked = totals.get(name, 0)
                for name in sorted(totals.keys() - running.outbounds.keys()):
                    busy |= self._reroute(running, name)
        return busy

    def _reroute(self, running: RunningRuleSet, name: str) -> bool:
        """Let each version of the rules decide once about items of a missing outbound.

        The outbound is disabled, or was removed from the rules.
        """
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
            # A batch that still runs by the previous rules may park more.
            self._stranded[key] = now + STRANDED_SECONDS
        else:
            self.timers.hasten("parked")
        self._offer_these(running, entries)
        return bool(entries)

    def _offer(self, running: RunningRuleSet) -> bool:
        now = self._clock.monotonic()
        busy = False
        for channel in list(running.outbounds.values()):
            if channel.has_parked and not channel.unreachable and now >= channel.offer_at:
                busy |= self._offer_to(running, channel)
        return busy

    def _offer_to(self, running: RunningRuleSet, channel: OutboundChannel) -> bool:
        """Send items parked for an outbound, as many as it has room and tokens for."""
        most = channel.room(BATCH)
        channel.offer_at = self._clock.monotonic() + LOOK_SECONDS
        tokens = channel.rule.token_per_second > 0 and not channel.is_scoped
        if most and tokens:
            # Take no more tokens than items: an unused token is lost.
            most = self._parked_for(running, channel, most)
            waits = channel.tokens.take([channel.scope_value(None)] * most)
            granted = sum(1 for wait in waits if wait == 0)
            if granted < most:
                channel.offer_at = self._clock.monotonic() + min(waits[granted], 1.0)
            channel.has_parked = most > 0
            most = granted
        if not most:
            return False
        entries = self._claim_parked(running, channel.rule.name, most, due_only=channel.is_scoped)
        if len(entries) < most and not channel.is_scoped and not tokens:
            # All parked items were claimed; the flag is set again when one is parked.
            channel.has_parked = False
        if len(entries) == (BATCH if tokens else most):
            channel.offer_at = 0.0
        self._offer_these(running, entries, has_token=tokens)
        return bool(entries)

    def _parked_for(self, running: RunningRuleSet, channel: OutboundChannel, most: int) -> int:
        rows = RoutedItem.objects.parked(running.project, channel.rule.name)
        return rows.values("id")[:most].count()

    def _is_probed(self, channel: OutboundChannel) -> bool:
        return bool(channel.unreachable) and self._clock.monotonic() >= channel.probe_at

    def _probe(self, running: RunningRuleSet, channel: OutboundChannel) -> None:
        """Send the oldest parked item to find out whether the target is back."""
        # Set before sending: without a token nothing is sent, and the state stays unknown.
        channel.probe_at = self._clock.monotonic() + FIRST_PROBE_SECONDS
        entries = self._claim_parked(running, channel.rule.name, 1)
        if entries:
            self._offer_these(running, entries)
        else:
            # Another router has sent the parked items, so the target answers there.
            channel.mark_reachable()

    def _claim_parked(
        self,
        running: RunningRuleSet,
        outbound: str,
        limit: int,
        *,
        not_by: int | None = None,
        due_only: bool = False,
    ) -> list[LedgerEntry]:
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
        self, running: RunningRuleSet, entries: Iterable[LedgerEntry], *, has_token: bool = False
    ) -> None:
        sender = Sender(running, self._clock, self._pipeline.is_stopping)
        decided_items = []
        for entry in entries:
            decided = self._pipeline.try_decide(running, entry, partial(_decide, running, entry))
            if decided is None:
                continue
            decision, item = decided
            is_its_turn = decision.outbound == entry.outbound
            decided_items.append(
                DecidedItem(
                    entry,
                    decision,
                    sender.routing_step(decision),
                    item,
                    is_its_turn=is_its_turn,
                    has_token=has_token and is_its_turn,
                )
            )
        self._pipeline.route(running, decided_items)


class _LongWriteGuard:
    """Delays claims after an outage of the database until other threads have committed their moves.

    Their items were sent, but their leases may have expired during the outage; claiming these items
    would send them twice. Not thread-safe.
    """

    def __init__(self, pipeline: RoutingPipeline, clock: Clock) -> None:
        self._pipeline = pipeline
        self._clock = clock
        # Since when the database answers while other threads still write (monotonic seconds).
        self._since: float | None = None

    def waits(self) -> bool:
        """Return whether claims must wait. Raises the error of an unreachable database."""
        since, self._since = self._since, None
        if not self._pipeline.has_long_write():
            return False
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        now = self._clock.monotonic()
        self._since = now if since is None else since
        # A write that hangs for another reason must not stop claims forever.
        return now < self._since + PATIENCE_SECONDS


def _decide(running: RunningRuleSet, entry: LedgerEntry) -> tuple[Decision, Item]:
    """Return the decision about a claimed item, and the item as stored."""
    if entry.state == ItemState.RECEIVED:
        item = entry.item
        return running.life.decide(item, None), item
    if entry.state == ItemState.DISPATCHED:
        known = known_item(entry)
        return running.life.timed_out(known), known.item
    # A retry has its outbound already, so it is decided like a parked item.
    known = replace(known_item(entry), state=TaskState.PARKED)
    return running.life.offer(known), known.item
