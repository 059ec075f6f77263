"""One import, from the total to its end.

total -> plan -> for each batch, newest first: request -> sort -> publish -> move the checkpoint

Batches are requested ahead, several at once if the API is slower than its rate limit, and published
strictly in order, so the checkpoint never skips a batch. After a crash the last batch may be
published again, with the same message ids.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future, wait
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from msgspec.structs import replace

from apps.sources.engine.clients.base import RecordClient, RecordPage
from apps.sources.engine.errors import ApiFailed, Interrupted
from apps.sources.engine.progress import (
    COMPLETE,
    Checkpoint,
    EndReason,
    Gap,
    HarvestCounts,
    Marker,
    advanced,
    plan,
    windows,
)
from apps.sources.engine.records import RecordOrigin, SortedBatch, sort_batch
from apps.sources.engine.settings import Mode, ShrinkPolicy, Source
from yardkit.broker.base import Outgoing
from yardkit.failpoints import hit

T = TypeVar("T")

_LEAST_AHEAD: Final = 4
_MOST_AHEAD: Final = 32
_LOOK_SECONDS: Final = 0.1
# After this many consecutive records that come back although marked as exported, marking is
# considered ineffective.
_MOST_REPEATS: Final = 3


class HarvestContext(Protocol):
    """Interface of the process that runs an import."""

    def source(self) -> Source:
        """Return the current settings; they may change between two batches."""

    def stop_reason(self) -> EndReason | None:
        """Return why the import should end at once, or None. Raises ``SourceLeaseLost``."""

    def now(self) -> datetime: ...

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the event loop of the clients."""

    def publish(self, messages: Sequence[Outgoing]) -> int:
        """Publish and wait for the confirms, however long the broker is unreachable.

        Return the number of messages that the broker rejects for their content. Raises
        ``Interrupted`` and ``SourceLeaseLost``.
        """

    def planned(self, checkpoint: Checkpoint, notes: list[dict[str, Any]]) -> None:
        """Store a new plan. Raises ``SourceLeaseLost``."""

    def moved(self, checkpoint: Checkpoint, counts: HarvestCounts, gaps: Sequence[Gap]) -> None:
        """Store the checkpoint and the counts of a batch. Raises ``SourceLeaseLost``."""


@dataclass(slots=True)
class HarvestResult:
    """Result of an import. ``marker`` is set if it is complete; the checkpoint is void then."""

    why: EndReason
    marker: Marker | None = None
    total: int | None = None
    error: str = ""
    gaps: list[Gap] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)


class Harvester:
    """Runs one import in its own thread; ``run`` raises only ``SourceLeaseLost`` and bugs."""

    def __init__(
        self,
        *,
        origin: RecordOrigin,
        marker: Marker,
        checkpoint: Checkpoint | None,
        client: RecordClient,
        context: HarvestContext,
    ) -> None:
        self._origin = origin
        self._marker = marker
        self._at = checkpoint
        self._client = client
        self._context = context
        self._known = frozenset(marker.overlap)
        self._notes: list[dict[str, Any]] = []
        # Overlap with the previous import: records read at its offsets, and how many were known.
        self._overlapping = 0
        self._recognised = 0

    def run(self) -> HarvestResult:
        """Import until the end or an interruption."""
        try:
            if self._context.source().mode is Mode.NOT_EXPORTED:
                return self._run_unexported()
            return self._run_offsets()
        except Interrupted as stopped:
            return HarvestResult(EndReason(stopped.why), notes=self._notes)
        except ApiFailed as failed:
            return HarvestResult(EndReason.ERROR, error=str(failed), notes=self._notes)

    # --- by offsets ---------------------------------------------------------------------------

    def _run_offsets(self) -> HarvestResult:
        at = self._at
        if at is None:
            planned = self._plan()
            if isinstance(planned, HarvestResult):
                return planned
            at = planned
        hit("sources.after_plan")
        gaps: list[Gap] = []
        why = self._batches(at, gaps)
        self._note_replaced()
        at = self._at or at
        marker = Marker(start=at.start, total=at.total, overlap=at.top)
        return HarvestResult(why, marker if why in COMPLETE else None, at.total, notes=self._notes)

    def _plan(self) -> Checkpoint | HarvestResult:
        source = self._context.source()
        total = self._wait(self._client.total())
        harvest_plan = plan(
            self._marker,
            total,
            source.batch_size,
            reset_when_shrunk=source.shrunk is ShrinkPolicy.RESET,
        )
        if harvest_plan.shrunk:
            before = self._marker.total if self._marker.total is not None else self._marker.start
            self._notes.append({"code": "shrunk", "from": before, "to": total})
        if harvest_plan.checkpoint is None:
            why = harvest_plan.why or EndReason.NOTHING
            empty = Marker() if harvest_plan.shrunk and why is EndReason.NOTHING else None
            return HarvestResult(why, empty, total, notes=self._notes)
        self._at = harvest_plan.checkpoint
        self._context.planned(harvest_plan.checkpoint, self._notes)
        return harvest_plan.checkpoint

    def _batches(self, at: Checkpoint, gaps: list[Gap]) -> EndReason:
        ahead = _Prefetcher(self._client, self._context, windows(at))
        try:
            while (future := ahead.next(self._depth())) is not None:
                offset, size, pending = future
                page = self._settled(pending)
                why = self._batch(offset, size, page)
                if why is not None:
                    return why
        finally:
            ahead.cancel()
        return EndReason.END

    def _batch(self, offset: int, size: int, page: RecordPage) -> EndReason | None:
        at = self._at
        if at is None:
            raise AssertionError("a batch without a plan")
        records = page.records[:size]
        batch = self._sort(records, offset)
        self._overlap(offset, len(records), batch)
        self._send(batch)
        after = advanced(at)
        expired = at.expired + 1 if batch.expired else 0
        after = replace(after, expired=expired, top=batch.ids if offset == at.start else at.top)
        gaps = (
            []
            if len(records) == size
            else [Gap(offset + len(records), offset + size - 1, "missing")]
        )
        most = self._context.source().max_expired_batches
        over = at.first and 0 < most <= expired
        if over and offset > at.end:
            gaps.append(Gap(at.end, offset - 1, "expired"))
        self._context.moved(after, batch.counts, gaps)
        self._at = after
        hit("sources.after_checkpoint")
        return EndReason.EXPIRED if over else None

    def _sort(self, records: list[Any], offset: int | None) -> SortedBatch:
        return sort_batch(
            records,
            origin=self._origin,
            source=self._context.source(),
            now=self._context.now(),
            offset=offset,
            known=self._known,
        )

    def _send(self, found: SortedBatch) -> None:
        self._refuse_when_unwanted()
        hit("sources.before_publish")
        if found.messages:
            refused = self._context.publish(found.messages)
            found.counts.published -= refused
            found.counts.refused += refused
        hit("sources.after_publish")

    def _overlap(self, offset: int, count: int, found: SortedBatch) -> None:
        start = self._marker.start
        if start is None or not self._marker.overlap:
            return
        end = start + len(self._marker.overlap)
        self._overlapping += max(0, min(offset + count, end) - max(offset, start))
        self._recognised += found.known

    def _note_replaced(self) -> None:
        """Add a remark if the source was probably cleared and has grown past its marker since."""
        if self._overlapping and not self._recognised:
            self._notes.append({"code": "replaced", "records": self._overlapping})

    def _depth(self) -> int:
        """Return the number of concurrent requests: the API's latency times its rate limit."""
        wanted = math.ceil(self._context.source().rate_limit * self._client.latency) + 3
        return max(_LEAST_AHEAD, min(wanted, _MOST_AHEAD))

    # --- by export marks of the API ------------------------------------------------------------

    def _run_unexported(self) -> HarvestResult:
        at = self._at or Checkpoint(first=self._marker.start is None)
        self._at = at
        total: int | None = None
        repeats = 0
        marked = False
        while True:
            size = self._context.source().batch_size
            page = self._wait(self._client.top(size))
            total = page.total if total is None else total
            if not page.records:
                break
            self._known = frozenset(at.unmarked)
            batch = self._sort(page.records, None)
            repeats = repeats + 1 if marked and batch.known == len(page.records) else 0
            if repeats >= _MOST_REPEATS:
                raise ApiFailed("the API returns the same records after they were marked", "marks")
            self._send(batch)
            at = replace(at, unmarked=batch.ids, total=total or 0)
            self._context.moved(at, batch.counts, ())
            self._at = at
            hit("sources.before_mark")
            self._wait(self._client.mark())
            marked = True
            hit("sources.after_mark")
        return HarvestResult(EndReason.END, self._marker, total, notes=self._notes)

    # --- waiting ------------------------------------------------------------------------------

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._settled(self._context.submit(work))

    def _settled(self, pending: Future[T]) -> T:
        while True:
            done, _ = wait([pending], timeout=_LOOK_SECONDS)
            if done:
                try:
                    return pending.result()
                except CancelledError:
                    # The event loop of the clients is stopping, and with it this process.
                    raise Interrupted(EndReason.SHUTDOWN.value) from None
            try:
                self._refuse_when_unwanted()
            except BaseException:
                pending.cancel()
                raise

    def _refuse_when_unwanted(self) -> None:
        why = self._context.stop_reason()
        if why is not None:
            raise Interrupted(why.value)


class _Prefetcher:
    """Prefetched batches, in order."""

    def __init__(
        self, client: RecordClient, context: HarvestContext, offsets: Iterator[tuple[int, int]]
    ) -> None:
        self._ask: Callable[[int, int], Coroutine[Any, Any, RecordPage]] = client.batch
        self._submit = context.submit
        self._offsets = offsets
        self._pending: deque[tuple[int, int, Future[RecordPage]]] = deque()

    def next(self, depth: int) -> tuple[int, int, Future[RecordPage]] | None:
        """Return the next batch; keep ``depth`` requests in flight."""
        while len(self._pending) < depth:
            window = next(self._offsets, None)
            if window is None:
                break
            self._pending.append((*window, self._submit(self._ask(*window))))
        return self._pending.popleft() if self._pending else None

    def cancel(self) -> None:
        """Cancel requests whose answers are not needed."""
        for _offset, _size, pending in self._pending:
            pending.cancel()
        self._pending.clear()
