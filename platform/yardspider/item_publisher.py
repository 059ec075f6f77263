"""Items and files of a run on the platform: published in batches, each confirmed by the broker.

A request counts as a success when everything that its callback has yielded is confirmed, so what
was yielded is stored in the end even if this process dies.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from yardkit import failpoints, topology
from yardkit.bridge import in_daemon_thread
from yardkit.broker import Outgoing
from yardkit.items.batches import encode_line, pack
from yardkit.items.requests import RequestRow
from yardkit.protocol import BATCH_BYTES, BATCH_ITEMS, FileChunk, ItemBatch, encode
from yardspider.environment import RunEnvironment
from yardspider.errors import RunFailed
from yardspider.files import RunFile
from yardspider.item_lines import ItemEncoder
from yardspider.outputs import ItemFile
from yardspider.settings import SpiderSettings

log = logging.getLogger("yardspider")


class Publishing(Protocol):
    """What publishes: the transport of a run."""

    def publish(
        self, messages: Sequence[Outgoing], on_confirmed: Callable[[], None] | None = None
    ) -> None:
        """Publish until confirmed, then call ``on_confirmed``. A permanent loss ends the run."""


class _Sent:
    """Items or a file on their way, up to number ``last``, in ``parts`` messages."""

    __slots__ = ("last", "parts")

    def __init__(self, last: int, parts: int) -> None:
        self.last = last
        self.parts = parts


class _Numbers:
    """Numbers of items, or of files, that were taken; confirms may come in any order.

    ``confirmed``: the last number up to which all are confirmed.
    """

    def __init__(self) -> None:
        self.last = 0
        self.confirmed = 0
        self._sent: deque[_Sent] = deque()

    @property
    def unconfirmed(self) -> int:
        return self.last - self.confirmed

    def send(self, parts: int = 1) -> _Sent:
        """Note that everything up to ``last`` is being sent."""
        sent = _Sent(self.last, parts)
        self._sent.append(sent)
        return sent

    def confirm(self, sent: _Sent) -> None:
        """Note the confirm of one part."""
        sent.parts -= 1
        while self._sent and not self._sent[0].parts:
            self.confirmed = self._sent.popleft().last


class _LineStream:
    """Lines of one producer: numbered, and published in batches.

    Args:
        publish: called with each batch, the stream's numbers and the lines that it holds.
    """

    def __init__(
        self, producer: str, run: RunEnvironment, publish: Callable[[bytes, _Numbers, _Sent], None]
    ) -> None:
        self._producer = producer
        self._run = run
        self._publish = publish
        self._lines: list[bytes] = []
        self.bytes = 0
        self.numbers = _Numbers()

    def add(self, line: bytes) -> None:
        """Take a line; it waits for others to be sent with it."""
        if self._lines and (
            len(self._lines) >= BATCH_ITEMS or self.bytes + len(line) > BATCH_BYTES
        ):
            self.flush()
        self._lines.append(line)
        self.bytes += len(line)
        self.numbers.last += 1

    def flush(self) -> None:
        """Publish what waits."""
        if not self._lines:
            return
        lines, raw_bytes = pack(self._lines)
        batch = ItemBatch(
            producer=self._producer,
            boot=self._run.incarnation,
            first=self.numbers.last - len(self._lines) + 1,
            count=len(self._lines),
            lines=lines,
            raw_bytes=raw_bytes,
            at=time.time(),
            token=self._run.token,
        )
        self._lines, self.bytes = [], 0
        failpoints.hit("spider.before_items")
        self._publish(encode(batch), self.numbers, self.numbers.send())
        failpoints.hit("spider.after_items")


class ItemPublisher:
    """Sink of one execution of a run.

    Rows of requests are sent after the items of the requests, and nothing waits for their confirm
    but the end of the run.

    Args:
        dropped: counts items that are given up, by reason; shared with the accounting.
        copy: a file that gets the items as well.
    """

    def __init__(
        self,
        run: RunEnvironment,
        settings: SpiderSettings,
        dropped: dict[str, int],
        copy: ItemFile | None = None,
    ) -> None:
        self._run = run
        self._producer = f"run:{run.run}"
        self.keeps_requests = run.keeps_requests
        self._most_items = settings.unconfirmed_items
        self._most_bytes = settings.unconfirmed_bytes
        self._encoder = ItemEncoder(dropped)
        self._copy = copy
        self._transport: Publishing | None = None
        self._ring: Callable[[], None] = lambda: None
        self._item_lines = _LineStream(self._producer, run, self._publish)
        self._request_lines = _LineStream(f"requests:{run.run}", run, self._publish)
        self._items = self._item_lines.numbers
        self._requests = self._request_lines.numbers
        self._files = _Numbers()
        # Of messages that are not confirmed, and of files that are too large for one message.
        self._bytes = 0
        self._unsent_bytes = 0
        self._large: deque[tuple[RunFile, _Sent]] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._waiting: deque[tuple[int, int, Callable[[], None]]] = deque()
        self._confirms = asyncio.Event()
        self.failure: RunFailed | None = None

    def connect(self, transport: Publishing, ring: Callable[[], None]) -> None:
        """Use a transport. ``ring`` is called after confirms."""
        self._transport = transport
        self._ring = ring

    # --- items ----------------------------------------------------------------------------------

    def add(self, item: dict[str, Any], url: str = "") -> None:
        """Add an item. Raises ``TypeError`` when it cannot be written as JSON."""
        line = self._encoder.line(item, url)
        if line is None:
            return
        if self._copy is not None:
            self._copy.add(item, url)
        self._item_lines.add(line)

    def put_request(self, row: RequestRow) -> None:
        """Add the row of an ended request."""
        self._request_lines.add(encode_line("", row))

    def flush(self) -> None:
        """Publish what waits, without waiting for the confirm."""
        if self._copy is not None:
            self._copy.flush()
        self._item_lines.flush()
        self._request_lines.flush()

    def flush_requests(self) -> None:
        """Publish the rows of requests that wait."""
        self._request_lines.flush()

    # --- files ----------------------------------------------------------------------------------

    def put_file(self, file: RunFile) -> None:
        """Publish a file; a large one is read and sent in the background."""
        if file.parts == 1:
            digest, data = file.sha256(), file.read(0)
            file.close()
            self._files.last += 1
            self._send_part(file, self._files.send(), digest, 0, data)
            return
        self._files.last += 1
        sent = self._files.send(file.parts)
        self._unsent_bytes += file.size
        self._large.append((file, sent))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_large())

    async def _send_large(self) -> None:
        while self._large:
            file, sent = self._large[0]
            try:
                digest = await in_daemon_thread(file.sha256)
                for part in range(file.parts):
                    while self._bytes > self._most_bytes:
                        await self._confirm()
                    data = await in_daemon_thread(file.read, part)
                    self._unsent_bytes -= len(data)
                    self._send_part(file, sent, digest, part, data)
            except OSError as error:
                self.failure = RunFailed(f"cannot read {file.name}: {error.strerror or error}")
                self._ring()
                return
            file.close()
            self._large.popleft()

    def _send_part(self, file: RunFile, sent: _Sent, digest: str, part: int, data: bytes) -> None:
        chunk = FileChunk(
            producer=self._producer,
            boot=self._run.incarnation,
            name=file.name,
            content_type=file.content_type,
            part=part,
            parts=file.parts,
            size=file.size,
            sha256=digest,
            data=data,
            at=time.time(),
            token=self._run.token,
        )
        failpoints.hit("spider.before_file_part")
        self._publish(encode(chunk), self._files, sent)

    # --- confirms -------------------------------------------------------------------------------

    @property
    def taken(self) -> int:
        """Number of items and files that were taken."""
        return self._items.last + self._files.last

    @property
    def unconfirmed(self) -> int:
        """Number of items, files and rows of requests that are not confirmed."""
        return self._items.unconfirmed + self._files.unconfirmed + self._requests.unconfirmed

    @property
    def crowded(self) -> bool:
        """Whether callbacks must wait for confirms."""
        return (
            self._bytes + self._item_lines.bytes + self._unsent_bytes > self._most_bytes
            or self._items.unconfirmed > self._most_items
        )

    @property
    def waiting(self) -> int:
        """Number of requests that wait for the confirm of their items."""
        return len(self._waiting)

    def after(self, work: Callable[[], None]) -> None:
        """Call ``work`` once everything that was taken so far is confirmed."""
        if self._items.unconfirmed or self._files.unconfirmed:
            self._waiting.append((self._items.last, self._files.last, work))
        else:
            work()

    async def room(self) -> None:
        """Wait until the sink is not crowded."""
        while self.crowded:
            self.flush()
            await self._confirm()

    async def finish(self, limit_seconds: float) -> None:
        """Wait until everything is confirmed. Raises ``RunFailed``."""
        self.flush()
        try:
            async with asyncio.timeout(limit_seconds):
                while self.unconfirmed and self.failure is None:
                    await self._confirm()
        except TimeoutError:
            pass
        if self._sending is not None:
            self._sending.cancel()
        for file, _ in self._large:
            file.close()
        if self._copy is not None:
            self._copy.close()
        items, files = self._items.unconfirmed, self._files.unconfirmed
        if self._requests.unconfirmed:
            log.warning("rows of %d requests were not confirmed", self._requests.unconfirmed)
        if items or files:
            lost = f"{items} items and {files} files" if files else f"{items} items"
            raise RunFailed(f"{lost} were not confirmed by the broker within {limit_seconds:g} s")

    async def _confirm(self) -> None:
        """Wait for the next confirm."""
        self._confirms.clear()
        await self._confirms.wait()

    def _publish(self, body: bytes, numbers: _Numbers, sent: _Sent) -> None:
        if self._transport is None:
            raise RuntimeError("connect before the first item")
        self._bytes += len(body)
        message = Outgoing(body, key=topology.ITEMS.name)
        self._transport.publish([message], partial(self._confirmed, len(body), numbers, sent))

    def _confirmed(self, size: int, numbers: _Numbers, sent: _Sent) -> None:
        failpoints.hit("spider.items_confirmed")
        self._bytes -= size
        numbers.confirm(sent)
        items, files = self._items.confirmed, self._files.confirmed
        while self._waiting and self._waiting[0][0] <= items and self._waiting[0][1] <= files:
            self._waiting.popleft()[2]()
        self._confirms.set()
        self._ring()
