"""Upkeep of stored requests, every ten seconds by a worker.

For every biz, removed ones included: queues unqueued requests, ends overdue leases, marks expired
requests and drops their queue entries, closes accounting, deletes, writes reports. Each step is
guarded in the store or the database, so that repeats, concurrent workers and crashes are harmless.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from apps.requeststore.engine.errors import RequestStoreError, RequestStoreUnavailable
from apps.requeststore.engine.flags import NEW, TAKEN
from apps.requeststore.engine.placement import ShardPlace
from apps.requeststore.engine.shard import Shard
from apps.requeststore.models import NodeReport, ShardReport
from apps.requeststore.queues.base import QueueStats, RequestQueue
from apps.requeststore.services.bindings import BoundBiz
from apps.requeststore.services.closed_slices import at_ms, close_spans, fold_slices, ms
from apps.requeststore.services.latecomers import count_late
from apps.requeststore.services.reports import (
    ShardCensus,
    count_shard,
    gap_of,
    report_node,
    report_queue,
    save_problem,
    save_shard,
)
from apps.requeststore.services.shards import note_shard
from apps.requeststore.services.store import RequestStore
from apps.requeststore.services.sweep import LIMIT, Sweep, UpkeepResult, drop_expired
from apps.runtime.errors import NoFreeNumber
from apps.runtime.services import lease_worker, release_lease
from yardkit.broker import BrokerError
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

LEASE: Final = "requeststore.upkeep"
# Time limit of a round (seconds), and so the longest gap after a killed worker.
ROUND_SECONDS: Final = 20.0
LEASE_TIME: Final = timedelta(seconds=45)
# Seconds of pause for each second that a count took.
REST: Final = 20.0
# Interval (seconds) of searching for shards without an accounting row.
SEARCH_SECONDS: Final = 60.0
# Pause after a search for expired entries that found none: others cannot take what it holds.
FRUITLESS_SECONDS: Final = 120.0
AWAY: Final = (RequestStoreError, BrokerError)


def upkeep_once(
    request_store: RequestStore, *, now: int, by: str = "upkeep"
) -> UpkeepResult | None:
    """Run one round unless another worker is running one; return what was done."""
    try:
        lease = lease_worker(
            purpose=LEASE, owner=by_worker(request_store, by), ttl=LEASE_TIME, numbers=1
        )
    except NoFreeNumber:
        return None
    try:
        return Upkeep(request_store, by=by).round(now)
    finally:
        release_lease(lease=lease)


def by_worker(request_store: RequestStore, by: str) -> str:
    """Return the owner name for the lease."""
    return f"{by} {request_store.name}"


@dataclass(slots=True)
class _Memory:
    """Timers, and the biz to continue with, between rounds of this process."""

    timers: Timers = field(default_factory=Timers)
    turn: int = 0


_memory = _Memory()


class Upkeep:
    """Rounds over all bizzes; a round continues where the previous one ran out of time."""

    def __init__(
        self, request_store: RequestStore, *, by: str = "upkeep", seconds: float = ROUND_SECONDS
    ) -> None:
        self._request_store = request_store
        self._by = by
        self._until = time.monotonic() + seconds

    def round(self, now: int) -> UpkeepResult:
        """Run one round within the time limit."""
        swept = UpkeepResult()
        for name in self._request_store.nodes():
            report_node(self._request_store, name, at_ms(now))
        bizzes = [*self._request_store.bizzes(), *self._request_store.retired()]
        start = _memory.turn % len(bizzes) if bizzes else 0
        for number, bound in enumerate(bizzes[start:] + bizzes[:start]):
            if number and time.monotonic() >= self._until:
                _memory.turn = start + number
                break
            try:
                swept += self.biz(bound, now)
            except AWAY as error:
                logger.warning("upkeep of biz %s: %s", bound.name, error)
        return swept

    def biz(self, bound: BoundBiz, now: int) -> UpkeepResult:
        """Run upkeep of one biz."""
        swept = UpkeepResult()
        self._search(bound)
        rows = list(
            ShardReport.objects.filter(project_id=bound.project_id, biz=bound.name).order_by("pk")
        )
        known = [row for row in rows if row.node in self._request_store.nodes()]
        for row in rows:
            if row not in known:
                save_problem(row, f"REQUESTS_NODES has no node {row.node} any more")
        self._note_gaps(bound, known, now)
        away = list[ShardReport]()
        queue = self._queue(bound, now)
        for row in known:
            with self._noting(row, away):
                swept += self._shard(bound, row, queue, now)
        answering = [row for row in known if row not in away]
        with self._noting(None, away):
            swept.closed += close_spans(bound, answering, away, self._request_store.node, now)
        for row in answering:
            with self._noting(row, away):
                swept.deleted += self._delete(bound, row, now)
                self._count(bound, row, now)
        if queue is not None:
            stats = report_queue(bound, queue, at_ms(now))
            if stats is not None and (dropped := self._drop_expired(bound, answering, stats, now)):
                swept.dropped += dropped
                stats = report_queue(bound, queue, at_ms(now))
            swept.forgotten += self._forgotten(bound, answering, queue, stats, now)
        fold_slices(bound, at_ms(now))
        return swept

    def _note_gaps(self, bound: BoundBiz, rows: Sequence[ShardReport], now: int) -> None:
        """Warn for a week where a store may have deleted uncounted requests."""
        kinds = dict(NodeReport.objects.values_list("name", "kind"))
        for row in rows:
            if gap := gap_of(bound, row, kinds.get(row.node, ""), now):
                logger.error("biz %s: %s: %s", bound.name, row, gap)
                row.problem = gap
                save_problem(row, gap)

    @contextmanager
    def _noting(self, row: ShardReport | None, away: list[ShardReport]) -> Iterator[None]:
        """Turn an outage of one shard into its problem text."""
        try:
            yield
        except AWAY as error:
            if row is None:
                logger.warning("accounting not closed: %s", error)
                return
            away.append(row)
            save_problem(row, str(error))

    def _queue(self, bound: BoundBiz, now: int) -> RequestQueue | None:
        """Return the queue; None when it is unreachable or the biz is retired."""
        if bound.retired:
            return None
        try:
            queue = self._request_store.queue(bound)
            queue.rescue()
        except AWAY as error:
            report_queue(bound, None, at_ms(now), str(error))
            return None
        return queue

    def _search(self, bound: BoundBiz) -> None:
        """Add existing shards that have no accounting row."""
        if not _memory.timers.due(f"shards of {bound.queue_name}", SEARCH_SECONDS):
            return
        wanted: dict[str, list[Shard]] = {}
        for place in bound.spread.places:
            wanted.setdefault(place.node, []).append(place.shard)
        for name, shards in wanted.items():
            try:
                existing = set(self._request_store.node(name).shards(shards[0].database))
                for shard in shards:
                    if shard in existing:
                        note_shard(bound, ShardPlace(name, shard))
            except RequestStoreUnavailable:
                continue

    def _shard(
        self, bound: BoundBiz, row: ShardReport, queue: RequestQueue | None, now: int
    ) -> UpkeepResult:
        swept = UpkeepResult()
        place = _place(row)
        self._request_store.ensure(bound, place)
        sweep = Sweep(bound, place, self._request_store.node(row.node), by=self._by, now=now)
        if late := count_late(bound, row, self._request_store.node(row.node), now):
            logger.warning("biz %s: %d requests came after their time", bound.name, late)
        while marked := sweep.expire():
            swept.expired += marked
            if self._late():
                break
        if queue is not None:
            swept.overdue, swept.given_up = sweep.overdue(queue)
            swept.orphans = sweep.orphans(queue)
            row.overdue += swept.overdue + swept.given_up
            row.orphans += swept.orphans
        return swept

    def _delete(self, bound: BoundBiz, row: ShardReport, now: int) -> int:
        if row.closed_until is None:
            return 0
        sweep = Sweep(bound, _place(row), self._request_store.node(row.node), by=self._by, now=now)
        deleted = 0
        while done := sweep.delete(ms(row.closed_until)):
            deleted += done
            if self._late():
                break
        return deleted

    def _count(self, bound: BoundBiz, row: ShardReport, now: int) -> None:
        counted: ShardCensus | None = None
        timer = f"count of shard {row.pk}"
        if _memory.timers.due(timer, 0.0) or row.problem:
            began = time.monotonic()
            counted = count_shard(bound, row, self._request_store.node(row.node), now)
            _memory.timers.postpone(timer, (time.monotonic() - began) * REST)
        save_shard(row, counted, at_ms(now))

    def _drop_expired(
        self, bound: BoundBiz, rows: Sequence[ShardReport], stats: QueueStats, now: int
    ) -> int:
        """Remove entries of expired requests, where the queue holds more than requests are new."""
        surplus = stats.waiting - sum(row.by_flag.get(str(NEW), 0) for row in rows)
        timer = f"expired entries of {bound.queue_name}"
        if surplus <= 0 or not _memory.timers.due(timer, 0.0):
            return 0
        try:
            with closing(self._request_store.open_queue(bound)) as queue:
                cutoff = bound.settings.cutoff(now)
                dropped = drop_expired(queue, bound.name, cutoff=cutoff, most=surplus)
        except AWAY as error:
            logger.warning("upkeep of biz %s: %s", bound.name, error)
            return 0
        if not dropped:
            _memory.timers.postpone(timer, FRUITLESS_SECONDS)
        return dropped

    def _forgotten(
        self,
        bound: BoundBiz,
        rows: Sequence[ShardReport],
        queue: RequestQueue,
        stats: QueueStats | None,
        now: int,
    ) -> int:
        """Queue requests again whose entries are lost: fewer wait than requests are new.

        Fetchers keep an entry until its request ends, and the queue may know how many they hold.
        Other consumers keep none, so that the smaller difference counts.
        """
        if stats is None:
            return 0
        new, taken = (sum(row.by_flag.get(str(flag), 0) for row in rows) for flag in (NEW, TAKEN))
        lost = new - stats.waiting
        if stats.taken is not None:
            lost = min(lost, new + taken - stats.waiting - stats.taken)
        total = 0
        for row in rows:
            while total < lost and not self._late():
                sweep = Sweep(
                    bound, _place(row), self._request_store.node(row.node), by=self._by, now=now
                )
                try:
                    some = sweep.forgotten(queue, min(lost - total, LIMIT))
                except AWAY as error:
                    logger.warning("upkeep of biz %s: %s", bound.name, error)
                    break
                total += some
                if not some:
                    break
        return total

    def _late(self) -> bool:
        return time.monotonic() >= self._until


def _place(row: ShardReport) -> ShardPlace:
    return ShardPlace(row.node, Shard(row.database, row.collection))
