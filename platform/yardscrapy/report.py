"""What a crawl reports to the platform: items, files, outcomes of requests, statistics.

The crawl's thread hands over, the client's thread publishes; each part says which it belongs to.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from yardkit.items.requests import RequestRow
from yardkit.timers import Timers
from yardscrapy.items import add_item, convert, drop
from yardscrapy.request_rows import EndedRequest, row_of
from yardspider.accounting import CrawlAccounting, Depths
from yardspider.errors import RunFailed
from yardspider.files import RunFile
from yardspider.item_publisher import ItemPublisher
from yardspider.reporter import Reporter
from yardspider.transports.base import RunTransport

if TYPE_CHECKING:
    from scrapy import Spider

# What the crawl may hand over before the other thread has taken it.
_MOST_PENDING: Final = 10_000
# Interval of Scrapy's statistics; the counters are published each second.
_STATS_SECONDS: Final = 10.0
# Limits of the last items and counters of a run, and of one that is stopped.
_LAST_SECONDS: Final = 30.0
_LAST_HURRIED_SECONDS: Final = 1.5
# Limits of Scrapy's statistics: projects may make up names without end.
MOST_STATS: Final = 1000
_NAME_CHARACTERS: Final = 200
_TEXT_CHARACTERS: Final = 500


class ReportingClient(Protocol):
    """What reports: the run's client. ``transport`` exists once it has been started."""

    @property
    def transport(self) -> RunTransport | None: ...

    def call(self, work: Callable[..., None], *args: Any) -> None:
        """Call ``work`` in the client's thread."""

    def depths(self) -> Depths:
        """Return the numbers of attempts that are out and held. For the client's thread."""


class RunReport:
    """Counters, items and files of one crawl. Implements ``RequestEvents``.

    Args:
        spider: returns the spider of the crawl, whose methods are the callbacks of requests.
        keeps_files: media pipelines store with the run.
    """

    def __init__(
        self,
        client: ReportingClient,
        items: ItemPublisher,
        accounting: CrawlAccounting,
        spider: Callable[[], Spider | None],
        keeps_files: bool = False,
    ) -> None:
        self._spider = spider
        self._client = client
        self._items = items
        self.accounting = accounting
        self._keeps_files = keeps_files
        self._pending: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_scheduled = False
        # Of the client's thread.
        self._open = 0
        self._queued = 0
        self._reporter: Reporter | None = None
        self._timers = Timers()
        self._rooms: set[asyncio.Task[None]] = set()

    # --- the crawl's thread ---------------------------------------------------------------------

    def started(self) -> None:
        self._hand_over(self._count_open, 1)

    def replaced(self) -> None:
        self._hand_over(self._count_open, -1)

    def failed(self, ended: EndedRequest) -> None:
        self._hand_over(self._count_failed, ended.url, ended.status, ended.reason, self._row(ended))

    def succeeded(self, ended: EndedRequest) -> None:
        self._hand_over(self._confirm, self._row(ended))

    def _row(self, ended: EndedRequest) -> RequestRow | None:
        # Made here: the project may change the request afterwards.
        return row_of(ended, self._spider()) if self._items.keeps_requests else None

    def item(self, item: Any, url: str) -> None:
        # Converted here: the project may change the item afterwards.
        values, problem = convert(item, keeps_files=self._keeps_files)
        if problem:
            self.item_dropped(problem)
        else:
            self._hand_over(add_item, self._items, self.accounting, values, url)

    def item_dropped(self, reason: str) -> None:
        self._hand_over(drop, self.accounting, reason)

    def file(self, file: RunFile) -> None:
        self._hand_over(self._items.put_file, file)

    def publish(self, queued: int, stats: Mapping[str, Any]) -> None:
        """Publish the counters. ``queued``: requests in Scrapy's scheduler at this moment."""
        self._hand_over(self._publish, queued, _filtered(stats), stats_json(stats))

    @property
    def crowded(self) -> bool:
        """Whether the crawl must wait for confirms."""
        return self._items.crowded or len(self._pending) > _MOST_PENDING

    def when_there_is_room(self, ring: Callable[[], None]) -> None:
        """Call ``ring`` in the client's thread once the items are not crowded."""
        self._hand_over(self._await_room, ring)

    def _hand_over(self, work: Callable[..., None], *args: Any) -> None:
        self._pending.append((work, args))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._client.call(self._take)

    # --- the client's thread --------------------------------------------------------------------

    def _take(self) -> None:
        self._is_scheduled = False
        while self._pending:
            work, args = self._pending.popleft()
            work(*args)

    def _count_open(self, change: int) -> None:
        self._open += change

    def _count_failed(self, url: str, status: int, reason: str, row: RequestRow | None) -> None:
        self._open -= 1
        self.accounting.fail(url, status, reason)
        self._put(row)

    def _confirm(self, row: RequestRow | None) -> None:
        self._items.after(lambda: self._count_success(row))

    def _count_success(self, row: RequestRow | None) -> None:
        self._open -= 1
        self.accounting.success += 1
        self.accounting.pages += 1
        self._put(row)

    def _put(self, row: RequestRow | None) -> None:
        if row is not None:
            self._items.put_request(row)

    def _await_room(self, ring: Callable[[], None]) -> None:
        async def wait() -> None:
            await self._items.room()
            ring()

        task = asyncio.get_running_loop().create_task(wait())
        self._rooms.add(task)
        task.add_done_callback(self._rooms.discard)

    def _publish(self, queued: int, filtered: int, stats: dict[str, Any]) -> None:
        self.accounting.filtered = filtered
        # Empty: as reported before. The platform writes a row for them.
        self._note_totals(queued, stats if self._timers.due("stats", _STATS_SECONDS) else {})
        self._items.flush()
        reporter = self._reporter_of_run()
        if reporter is not None:
            reporter.publish()

    def _note_totals(self, queued: int, stats: dict[str, Any]) -> None:
        self._queued = queued
        self._sum_up()
        self.accounting.stats = stats

    def _sum_up(self) -> None:
        counts = self.accounting
        counts.total = counts.success + counts.failed + self._open + self._queued

    def _reporter_of_run(self) -> Reporter | None:
        transport = self._client.transport
        if self._reporter is None and transport is not None:
            self._reporter = Reporter(
                transport, self.accounting, self._depths, self._items.flush_requests
            )
        return self._reporter

    def _depths(self) -> Depths:
        # Of the moment in which the reporter makes its message: later than ``_publish``.
        self._sum_up()
        attempts = self._client.depths()
        return Depths(self._queued, self._open, attempts.out, attempts.held)

    async def finish(self, stats: Mapping[str, Any], *, hurry: bool) -> RunFailed | None:
        """Store the last items, publish the last counters; return why items are lost, if any.

        Called in the client's loop after the crawl has ended.
        """
        limit = _LAST_HURRIED_SECONDS if hurry else _LAST_SECONDS
        self._take()
        failure = self._items.failure
        try:
            await self._items.finish(limit)
        except RunFailed as error:
            failure = failure or error
        for task in self._rooms:
            task.cancel()
        self.accounting.filtered = _filtered(stats)
        self._note_totals(self._queued, stats_json(stats))
        reporter = self._reporter_of_run()
        if reporter is not None:
            await reporter.finish(limit_seconds=limit)
        return failure


def _filtered(stats: Mapping[str, Any]) -> int:
    return int(stats.get("dupefilter/filtered") or 0)


def stats_json(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Return Scrapy's statistics as JSON values; times as ISO 8601, other objects as text."""
    return {
        str(name)[:_NAME_CHARACTERS]: _stat(value)
        for name, value in itertools.islice(stats.items(), MOST_STATS)
    }


def _stat(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else float(value)
    if isinstance(value, datetime):
        # Scrapy before 2.11 kept naive times in UTC, and projects may do so still.
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    return str(value)[:_TEXT_CHARACTERS]
