"""Keeps pages: writes them beside the downloads, uploads the files, and publishes their index."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from apps.agents.downloader.kept.spool import MAX_PAGE_BYTES, PageSpool, Reason, WarcFile
from apps.agents.downloader.kept.warc import PageDownload
from yardkit import topology
from yardkit.bridge import in_daemon_thread
from yardkit.broker import BrokerClosed, Outgoing
from yardkit.clock import Clock
from yardkit.items.batches import encode_line, pack
from yardkit.outage import Outage
from yardkit.protocol import BATCH_ITEMS, ItemBatch, PageCounters, encode

logger = logging.getLogger(__name__)

# A file is uploaded this long after its first page, or when it is full.
FILE_SECONDS: Final = 10.0
TICK_SECONDS: Final = 0.5
REPORT_SECONDS: Final = 1.0
# Pages in memory that wait to be written.
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
# Pages that are written in one call of the thread.
_WRITE_BYTES: Final = 8 * 1024 * 1024
_UPLOADS: Final = 4
# A file that the store refuses again and again is given up.
_REFUSALS: Final = 5
KEEP_SECONDS: Final = 7 * 24 * 3600.0

Deliver = Callable[[Sequence[Outgoing], str, int], Awaitable[bool]]


class UploadFailed(Exception):
    """The file is not stored; ``refused``: because the store or the center does not take it."""

    def __init__(self, text: str, *, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


class PageStore(Protocol):
    """Where files are uploaded to."""

    async def upload(self, run: int, token: str, path: Path) -> str:
        """Store a file; return the key of its object. Raises ``UploadFailed``."""


@dataclass(slots=True)
class _RunPages:
    """Counters of one run since its first page here; ``boot`` identifies them."""

    token: str
    boot: str = field(default_factory=lambda: uuid.uuid4().hex)
    chosen: int = 0
    not_kept: dict[str, int] = field(default_factory=dict)
    seq: int = 0
    changed: bool = False
    released: bool = False


@dataclass(slots=True)
class _Upload:
    file: WarcFile
    rows: list[dict[str, Any]] | None = None
    key: str = ""
    refusals: int = 0


class PageKeeper:
    """Keeps pages of all runs of one agent, or of all request groups of one fetcher.

    Neither a full disk nor a store that is away stops or slows a download: a page that cannot be
    kept is counted with the reason.

    Args:
        deliver: publishes with confirm and retries; returns whether it was confirmed.
        file_seconds: after its first page a file is uploaded.
        retry_seconds: first pause after an upload that failed.
        of_datasets: numbers are those of request groups' datasets of pages instead of runs.
    """

    def __init__(
        self,
        *,
        folder: Path,
        agent: str,
        max_bytes: int,
        deliver: Deliver,
        store: PageStore,
        clock: Clock,
        file_seconds: float = FILE_SECONDS,
        retry_seconds: float = 1.0,
        of_datasets: bool = False,
    ) -> None:
        self._spool = PageSpool(folder, agent, max_bytes)
        self.agent = agent
        self._deliver = deliver
        self._store = store
        self._clock = clock
        self._file_seconds = file_seconds
        self._of_datasets = of_datasets
        self._pages: deque[tuple[int, PageDownload]] = deque()
        self._waiting_bytes = 0
        self._runs: dict[int, _RunPages] = {}
        self._uploads: deque[_Upload] = deque()
        self._wake = asyncio.Event()
        self._more = asyncio.Event()
        # The spool is used by one thread at a time.
        self._spool_lock = asyncio.Lock()
        self._outage = Outage(
            logger, "the upload of kept pages", first=retry_seconds, longest=60 * retry_seconds
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._uploading = 0
        self._reported_at = float("-inf")

    # --- called by downloads --------------------------------------------------------------------

    def keep(self, run: int, token: str, page: PageDownload) -> None:
        """Take a page; returns at once and raises nothing."""
        self._choose(run, token)
        if page.size > MAX_PAGE_BYTES:
            self._count(run, {Reason.LARGE: 1})
            return
        if self._waiting_bytes + page.size > MAX_WAITING_BYTES:
            self._count(run, {Reason.BUSY: 1})
            return
        self._pages.append((run, page))
        self._waiting_bytes += page.size
        if self._waiting_bytes >= _WRITE_BYTES:
            self._wake.set()

    def miss(self, run: int, token: str, reason: str) -> None:
        """Count a page that was chosen and cannot be kept."""
        self._choose(run, token)
        self._count(run, {reason: 1})

    def _choose(self, run: int, token: str) -> None:
        counters = self._runs.get(run)
        if counters is None:
            counters = self._runs[run] = _RunPages(token)
        counters.chosen += 1
        counters.changed, counters.released = True, False

    def release(self, run: int) -> None:
        """Upload what there is of a run: it has no downloader here any more."""
        if run in self._runs:
            self._runs[run].released = True
            self._wake.set()

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the tasks; files of earlier processes are uploaded, too."""
        loops = [self._keep_writing, *[self._keep_uploading] * _UPLOADS]
        self._tasks = [asyncio.ensure_future(self._guarded(loop)) for loop in loops]

    async def close(self, seconds: float) -> None:
        """Write what has come, and upload for up to ``seconds``; the rest is left on the disk."""
        for run in self._runs:
            self.release(run)
        self._reported_at = float("-inf")
        until = time.monotonic() + seconds
        while time.monotonic() < until and self._busy:
            await asyncio.sleep(0.02)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        async with self._spool_lock:
            await in_daemon_thread(self._spool.close)

    @property
    def _busy(self) -> bool:
        return bool(self._pages or self._runs or self._uploads or self._uploading)

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # Started again after a defect: without it no page would be kept any more.
        while True:
            try:
                await work()
            except BrokerClosed:
                return
            except Exception:  # the last guard: kept pages must not end the agent
                logger.exception("kept pages failed unexpectedly")
                await asyncio.sleep(TICK_SECONDS)
            else:
                return

    # --- write ----------------------------------------------------------------------------------

    async def _keep_writing(self) -> None:
        async with self._spool_lock:
            try:
                found = await in_daemon_thread(self._spool.leftovers)
            except OSError as error:
                logger.error("files of kept pages cannot be read: %s", error)
                found = []
        for file in found:
            self._add_upload(file)
        while True:
            try:
                async with asyncio.timeout(TICK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            while self._pages:
                await self._write_some()
            await self._finish_due()
            await self._report()

    async def _write_some(self) -> None:
        by_run: dict[int, list[PageDownload]] = {}
        size = 0
        while self._pages and size < _WRITE_BYTES:
            run, page = self._pages.popleft()
            by_run.setdefault(run, []).append(page)
            size += page.size
        try:
            async with self._spool_lock:
                for run, pages in by_run.items():
                    token = self._runs[run].token
                    written = await in_daemon_thread(self._spool.write, run, token, pages)
                    self._count(run, written.not_kept)
        finally:
            self._waiting_bytes -= size

    async def _finish_due(self) -> None:
        due = {*self._spool.due(self._clock.time(), self._file_seconds)}
        due.update(run for run in self._spool.open_runs if self._is_released(run))
        for run in due:
            async with self._spool_lock:
                try:
                    file = await in_daemon_thread(self._spool.finish, run)
                except OSError as error:
                    # It stays as it is, and is uploaded by the next process.
                    logger.warning("run %d: a file of kept pages is left: %s", run, error)
                    continue
            if file is not None:
                self._add_upload(file)

    def _is_released(self, run: int) -> bool:
        return run not in self._runs or self._runs[run].released

    # --- upload ---------------------------------------------------------------------------------

    def _add_upload(self, file: WarcFile) -> None:
        self._uploads.append(_Upload(file))
        self._more.set()

    async def _keep_uploading(self) -> None:
        while True:
            if not self._uploads:
                self._more.clear()
                await self._more.wait()
                continue
            upload = self._uploads.popleft()
            self._uploading += 1
            try:
                pause = await self._upload(upload)
            finally:
                self._uploading -= 1
            if pause:
                await asyncio.sleep(pause)

    async def _upload(self, upload: _Upload) -> float:
        """Upload, index and delete a file; return the seconds to wait after a failure."""
        file = upload.file
        try:
            if upload.rows is None:
                async with self._spool_lock:
                    upload.rows = await in_daemon_thread(self._spool.index, file)
            if not upload.key:
                upload.key = await self._store.upload(file.run, file.token, file.path)
            if not await self._publish(upload, upload.rows):
                raise UploadFailed("the index is not confirmed")
            await self._remove(file)
        except UploadFailed as error:
            return await self._failed(upload, error)
        except OSError as error:
            logger.warning("run %d: a file of kept pages is lost: %s", file.run, error)
            self._count(file.run, {Reason.DISK: file.pages or 0})
            return 0.0
        self._outage.recovered()
        return 0.0

    async def _failed(self, upload: _Upload, error: UploadFailed) -> float:
        file = upload.file
        upload.refusals += error.refused
        age = self._clock.time() - file.modified_at
        if upload.refusals >= _REFUSALS or age > KEEP_SECONDS:
            logger.warning("run %d: a file of kept pages is given up: %s", file.run, error)
            reason = Reason.OLD if age > KEEP_SECONDS else Reason.REFUSED
            self._count(file.run, {reason: file.pages or 0}, file.token)
            await self._remove(file)
            return 0.0
        # To the end: those of other runs may be taken.
        self._uploads.append(upload)
        return self._outage.failed(error)

    async def _remove(self, file: WarcFile) -> None:
        async with self._spool_lock:
            await in_daemon_thread(self._spool.remove, file)

    async def _publish(self, upload: _Upload, rows: list[dict[str, Any]]) -> bool:
        """Publish the index; the same numbers after a crash, so that no page is there twice."""
        file, messages = upload.file, []
        for begin in range(0, len(rows), BATCH_ITEMS):
            part = rows[begin : begin + BATCH_ITEMS]
            lines = [
                encode_line(row["url"], row | {"warc": file.name, "key": upload.key})
                for row in part
            ]
            packed, size = pack(lines)
            batch = ItemBatch(
                producer=f"{'biz_pages' if self._of_datasets else 'pages'}:{file.run}",
                boot=file.name,
                first=begin + 1,
                count=len(part),
                lines=packed,
                raw_bytes=size,
                at=self._clock.time(),
                token=file.token,
            )
            messages.append(Outgoing(body=encode(batch), key=topology.ITEMS.name))
        if not messages:
            return True
        return await self._deliver(messages, f"index of kept pages of run {file.run}", 0)

    # --- counters -------------------------------------------------------------------------------

    def _count(self, run: int, not_kept: dict[str, int], token: str = "") -> None:
        counters = self._runs.get(run)
        if counters is None:
            counters = self._runs[run] = _RunPages(token)
        for reason, count in not_kept.items():
            counters.not_kept[reason] = counters.not_kept.get(reason, 0) + count
            counters.changed = True

    async def _report(self) -> None:
        now = self._clock.monotonic()
        changed = {run: pages for run, pages in self._runs.items() if pages.changed}
        waiting = {run for run, _page in self._pages}
        for run in [run for run, pages in self._runs.items() if pages.released]:
            if run not in changed and run not in waiting:
                del self._runs[run]
        if not changed or now < self._reported_at + REPORT_SECONDS:
            return
        self._reported_at = now
        messages = []
        for run, pages in changed.items():
            pages.changed = False
            pages.seq += 1
            message = PageCounters(
                run=0 if self._of_datasets else run,
                boot=pages.boot,
                seq=pages.seq,
                chosen=pages.chosen,
                not_kept=dict(pages.not_kept),
                dataset=run if self._of_datasets else 0,
            )
            messages.append(Outgoing(body=encode(message), key=topology.STATISTICS.name))
        if not await self._deliver(messages, "counters of kept pages", 0):
            for pages in changed.values():
                pages.changed = True
