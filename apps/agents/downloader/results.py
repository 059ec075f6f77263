"""Publishes the answers of finished downloads."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Final

from apps.agents.downloader.commands import DownloadWork
from apps.agents.downloader.options import AgentOptions
from apps.agents.downloader.vitals import AgentCounters
from yardkit import failpoints
from yardkit.backoff import back_off
from yardkit.broker import Broker, BrokerClosed, BrokerError, Outgoing, Unroutable
from yardkit.broker.aio import publish
from yardkit.fetched import Fetched, result_of
from yardkit.protocol import (
    FIRST_KINDS,
    MAX_CONTENT_BYTES,
    DownloadResult,
    DownloadResults,
    FailureKind,
    encode,
)

logger = logging.getLogger(__name__)

MAX_RESULTS: Final = 32
MAX_BYTES: Final = 1024 * 1024
LINGER_SECONDS: Final = 0.005
COMPRESS_ABOVE_BYTES: Final = 1024 * 1024
# Rough size of headers, URL and framing of one result.
_OVERHEAD_BYTES: Final = 512


@dataclass(slots=True)
class _ResultBatch:
    results: list[DownloadResult] = field(default_factory=list)
    works: list[DownloadWork] = field(default_factory=list)
    size: int = 0
    timer: asyncio.TimerHandle | None = None


class ResultSender:
    """Collects answers by run and publishes them in batches.

    A batch leaves with 32 answers, at 1 MiB, or 5 ms after its first one. Unconfirmed answers are
    published again with back-off and dropped after ``publish_attempts``; answers to a run that is
    gone are dropped at once. Both are counted.
    """

    def __init__(
        self, broker: Broker, agent: str, options: AgentOptions, counters: AgentCounters
    ) -> None:
        self._broker = broker
        self._agent = agent
        self._options = options
        self._counters = counters
        self._batches: dict[tuple[str, int], _ResultBatch] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._pending_bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def idle(self) -> bool:
        """Whether nothing is collected or being published."""
        return not self._batches and not self._tasks

    async def room(self) -> None:
        """Wait while too much is unconfirmed: an unreachable broker must not fill the memory."""
        await self._room.wait()

    def add(self, work: DownloadWork, result: DownloadResult) -> None:
        """Add an answer to a request of ``work``, which is settled once the answer is sent."""
        key = (work.reply_to, work.run)
        batch = self._batches.get(key) or self._opened(key)
        size = len(result.body) + _OVERHEAD_BYTES
        if batch.results and batch.size + size > MAX_BYTES:
            # A large one travels alone: messages have a limit.
            self._flush(key)
            batch = self._opened(key)
        batch.results.append(result)
        batch.works.append(work)
        batch.size += size
        self._grow(size)
        if len(batch.results) >= MAX_RESULTS or batch.size >= MAX_BYTES:
            self._flush(key)

    def _opened(self, key: tuple[str, int]) -> _ResultBatch:
        batch = self._batches[key] = _ResultBatch()
        loop = asyncio.get_running_loop()
        batch.timer = loop.call_later(LINGER_SECONDS, self._flush, key)
        return batch

    def flush(self) -> None:
        """Publish what is collected now."""
        for key in list(self._batches):
            self._flush(key)

    async def drain(self, seconds: float) -> None:
        """Publish everything and wait for the confirms, up to ``seconds``."""
        self.flush()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=seconds)

    async def close(self) -> None:
        """Give up what is unsent; its commands stay unacknowledged."""
        for batch in self._batches.values():
            if batch.timer is not None:
                batch.timer.cancel()
        self._batches.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def deliver(self, messages: Sequence[Outgoing], what: str, requests: int) -> bool:
        """Publish with confirm and retries.

        Returns False when the messages had to be dropped; ``requests`` are counted as lost then.
        """
        options = self._options
        keys = ", ".join(sorted({message.key for message in messages}))
        reason = ""
        for attempt in range(1, options.publish_attempts + 1):
            try:
                await publish(self._broker, messages)
            except Unroutable:
                self._counters.unroutable += requests
                logger.info("%s for %s: the run is gone, dropped", what, keys)
                return False
            except BrokerClosed:
                raise
            except BrokerError as error:
                reason = str(error)
            else:
                return True
            if attempt < options.publish_attempts:
                await asyncio.sleep(
                    back_off(attempt, options.first_delay_seconds, options.longest_delay_seconds)
                )
        self._counters.dropped += requests
        logger.error(
            "%s for %s: dropped after %d attempts: %s", what, keys, options.publish_attempts, reason
        )
        return False

    def notify(self, messages: Sequence[Outgoing], what: str) -> None:
        """Publish in the background; not part of any command."""
        self._start(self.deliver(messages, what, 0))

    def _flush(self, key: tuple[str, int]) -> None:
        batch = self._batches.pop(key, None)
        if batch is None:
            return
        if batch.timer is not None:
            batch.timer.cancel()
        self._start(self._send(key, batch))

    def _start(self, action: Coroutine[None, None, object]) -> None:
        task = asyncio.ensure_future(action)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, key: tuple[str, int], batch: _ResultBatch) -> None:
        reply_to, run = key
        count = len(batch.results)
        try:
            failpoints.hit("agent.before_results")
            body = encode(DownloadResults(run=run, agent=self._agent, items=batch.results))
            outgoing = Outgoing(body=body, key=reply_to, persistent=False)
            await self.deliver([outgoing], f"{count} answers", count)
        except BrokerClosed:
            return  # the process is ending: unacknowledged, the commands come again
        except Exception:  # the last guard: the commands must be settled, or their place is lost
            self._counters.dropped += count
            logger.exception("run %d: %d answers dropped after an unexpected error", run, count)
        finally:
            self._grow(-batch.size)
        for work in batch.works:
            work.settle()

    def _grow(self, size: int) -> None:
        self._pending_bytes += size
        if self._pending_bytes < self._options.max_pending_bytes:
            self._room.set()
        else:
            self._room.clear()


async def make_result(
    request_id: int, attempt: int, fetched: Fetched, version: int, not_stored: str = ""
) -> DownloadResult:
    """Return the answer to one request; a large body is compressed in a thread.

    ``version``: of ``DownloaderSettings.result_version``. ``not_stored``: why the object store did
    not take the body.
    """
    body = fetched.body
    compressed = len(body) > COMPRESS_ABOVE_BYTES
    if compressed:
        body = await asyncio.to_thread(zlib.compress, body, 1)
        if len(body) > MAX_CONTENT_BYTES:
            error = (
                f"the page has {len(fetched.body)} bytes, compressed {len(body)}; a message to the"
                f" run holds {MAX_CONTENT_BYTES}: lower the job's largest body"
            )
            kind = FailureKind.BAD_CONTENT if version == 1 else FailureKind.TOO_LARGE
            if not_stored:
                kind = FailureKind.BODY_STORE
                size = len(fetched.body)
                error = f"a page of {size} bytes fits into no message: {not_stored}"
            return DownloadResult(request_id, attempt, fetched.url, 0, [], b"", kind, error)
    if version == 1:
        failed = fetched.failure != FailureKind.NONE
        return DownloadResult(
            request_id,
            attempt,
            fetched.url,
            0 if failed else fetched.status,
            [] if failed else list(fetched.headers),
            b"" if failed else body,
            FIRST_KINDS.get(fetched.failure, fetched.failure),
            fetched.error,
            fetched.elapsed_ms,
            fetched.truncated,
            compressed and not failed,
        )
    return result_of(request_id, attempt, fetched, body, compressed=compressed)
