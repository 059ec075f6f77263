"""Items of a run on the platform: published in batches, each confirmed by the broker.

A request counts as a success when everything that its callback has yielded is confirmed, so what
was yielded is stored in the end even if this process dies.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol

from yardkit import failpoints, topology
from yardkit.broker import BrokerError, Outgoing
from yardkit.errors import first_line
from yardkit.items.batches import encode_line, pack
from yardkit.nesting import MAX_DEPTH, NestedTooDeeply, check_json
from yardkit.protocol import BATCH_BYTES, BATCH_ITEMS, MAX_ITEM_BYTES, ItemBatch, encode
from yardspider.errors import RunFailed

log = logging.getLogger("yardspider")

# With more unconfirmed items nothing new is sent and no callback goes on.
CROWDED_BYTES: Final = 16 * 1024 * 1024
CROWDED_ITEMS: Final = 50_000
# Pause before a failed batch is published again.
_RETRY_SECONDS: Final = 1.0


class Publishing(Protocol):
    """What publishes: the transport of a run."""

    def publish_items(self, messages: Sequence[Outgoing]) -> Future[None]:
        """Publish; the future ends with the confirms. Raises ``BrokerError``."""


class _Batch:
    """A batch that is not confirmed yet; ``last`` is the number of its last item."""

    __slots__ = ("is_confirmed", "items", "last", "message", "size")

    def __init__(self, last: int, items: int, size: int, message: Outgoing) -> None:
        self.last = last
        self.items = items
        self.size = size
        self.message = message
        self.is_confirmed = False


class ItemPublisher:
    """Sink of one execution of a run.

    Args:
        dropped: counts items that are given up, by reason; shared with the accounting.
    """

    def __init__(self, run: int, incarnation: str, token: str, dropped: dict[str, int]) -> None:
        self._run = run
        self._incarnation = incarnation
        self._token = token
        self._dropped = dropped
        self._transport: Publishing | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ring: Callable[[], None] = lambda: None
        self._lines: list[bytes] = []
        self._line_bytes = 0
        # Number of the last item that was added, and of the last one that is confirmed with all
        # before it.
        self._last = 0
        self._confirmed = 0
        self._pending: deque[_Batch] = deque()
        self._pending_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._retry: asyncio.Task[None] | None = None
        self._failed: list[_Batch] = []
        self._error = ""
        self._room = asyncio.Event()

    def connect(self, transport: Publishing, ring: Callable[[], None]) -> None:
        """Use a transport, in the running loop. ``ring`` is called after confirms."""
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._ring = ring

    # --- the sink -------------------------------------------------------------------------------

    def add(self, item: dict[str, Any], url: str = "") -> None:
        """Add an item. Raises ``TypeError`` when it cannot be written as JSON."""
        line = encode_line(url, item)
        reason = _unstorable(line)
        if reason:
            if not self._dropped.get(reason):
                log.warning("item dropped: %s (%s)", reason, url or "no page")
            self._dropped[reason] = self._dropped.get(reason, 0) + 1
            return
        if self._lines and (
            len(self._lines) >= BATCH_ITEMS or self._line_bytes + len(line) > BATCH_BYTES
        ):
            self.flush()
        self._lines.append(line)
        self._line_bytes += len(line)
        self._last += 1

    def flush(self) -> None:
        """Publish what waits, without waiting for the confirm."""
        if not self._lines or self._transport is None:
            return
        lines, packed = self._lines, pack(self._lines)
        batch = ItemBatch(
            producer=f"run:{self._run}",
            boot=self._incarnation,
            first=self._last - len(lines) + 1,
            count=len(lines),
            lines=packed[0],
            raw_bytes=packed[1],
            at=time.time(),
            token=self._token,
        )
        message = Outgoing(encode(batch), key=topology.ITEMS.name)
        pending = _Batch(self._last, len(lines), len(packed[0]), message)
        self._pending.append(pending)
        self._pending_bytes += pending.size
        self._lines, self._line_bytes = [], 0
        failpoints.hit("spider.before_items")
        self._publish(pending)
        failpoints.hit("spider.after_items")

    @property
    def last(self) -> int:
        """Return the number of items that were added and not dropped."""
        return self._last

    @property
    def crowded(self) -> bool:
        """Return whether callbacks must wait for confirms."""
        return self._pending_bytes > CROWDED_BYTES or self._last - self._confirmed > CROWDED_ITEMS

    @property
    def unconfirmed(self) -> int:
        """Return the number of requests that wait for the confirm of their items."""
        return len(self._waiting)

    def after(self, work: Callable[[], None]) -> None:
        """Call ``work`` once everything that was added so far is confirmed."""
        if self._confirmed >= self._last:
            work()
        else:
            self._waiting.append((self._last, work))

    async def room(self) -> None:
        """Wait until the sink is not crowded."""
        while self.crowded:
            self.flush()
            self._room.clear()
            await self._room.wait()

    async def finish(self, limit_seconds: float) -> None:
        """Wait until everything is confirmed. Raises ``RunFailed``."""
        self.flush()
        deadline = time.monotonic() + limit_seconds
        while self._confirmed < self._last:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._room.clear()
            try:
                async with asyncio.timeout(min(left, _RETRY_SECONDS)):
                    await self._room.wait()
            except TimeoutError:
                continue
        if self._retry is not None:
            self._retry.cancel()
        if self._confirmed < self._last:
            why = f": {self._error}" if self._error else ""
            lost = self._last - self._confirmed
            raise RunFailed(f"{lost} items were not confirmed by the broker{why}")

    # --- confirms -------------------------------------------------------------------------------

    def _publish(self, batch: _Batch) -> None:
        assert self._transport is not None  # noqa: S101 - flush has looked
        loop = self._loop
        try:
            future = self._transport.publish_items([batch.message])
        except BrokerError as error:
            self._again(batch, error)
            return

        def settled(done: Future[None]) -> None:
            if done.cancelled() or loop is None:
                return
            try:
                loop.call_soon_threadsafe(self._settled, batch, done.exception())
            except RuntimeError:
                # The loop has ended: the run failed for another reason.
                return

        future.add_done_callback(settled)

    def _settled(self, batch: _Batch, error: BaseException | None) -> None:
        if error is not None:
            self._again(batch, error)
            return
        batch.is_confirmed = True
        while self._pending and self._pending[0].is_confirmed:
            done = self._pending.popleft()
            self._pending_bytes -= done.size
            self._confirmed = done.last
        while self._waiting and self._waiting[0][0] <= self._confirmed:
            self._waiting.popleft()[1]()
        self._room.set()
        self._ring()

    def _again(self, batch: _Batch, error: BaseException) -> None:
        """Publish the same batch again: its numbers let the platform recognise a repeat."""
        if not self._failed:
            log.warning("publishing items failed, retrying every second: %s", first_line(error))
        self._error = first_line(error)
        self._failed.append(batch)
        if self._retry is None or self._retry.done():
            self._retry = asyncio.create_task(self._publish_again())

    async def _publish_again(self) -> None:
        while self._failed:
            await asyncio.sleep(_RETRY_SECONDS)
            batches, self._failed = self._failed, []
            for batch in batches:
                self._publish(batch)


def _unstorable(line: bytes) -> str:
    """Return why no item of this line can be stored, "" if it can."""
    if len(line) > MAX_ITEM_BYTES:
        return f"an item is larger than {MAX_ITEM_BYTES} bytes"
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH:
        try:
            check_json(line)
        except NestedTooDeeply as error:
            return f"an item is {error}"
    return ""
