"""Changes the address of the whole host by a command that redials its line.

Agents of one host coordinate by a file: the holder of its lock redials. The file contains the time
of the last redial, so that it outlives restarts and the other agents need not redial again.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from apps.agents.downloader.fetchers.proxies import ask
from yardkit.clock import Clock

logger = logging.getLogger(__name__)

MOST_ATTEMPTS: Final = 10
# Downloads have timeouts of their own; one without a sensible one must not hold up all
# others.
DRAIN_SECONDS: Final = 120.0
_LOCK_POLL_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 1.0
_OUTPUT_BYTES: Final = 2000
_WORKED: Final = "worked"
Check = Callable[[], Awaitable[bool]]
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RedialOptions:
    """How this host redials. ``command`` is argv, not a shell command; times in seconds."""

    command: tuple[str, ...]
    lock: Path
    check_url: str = ""
    interval_seconds: float = 120.0
    command_seconds: float = 60.0


class Redialer:
    """Redials on request, at most once an interval on the whole host.

    Every download of a downloader with ``redial`` runs inside ``download()``. From the moment a
    redial is requested, the interval included, new downloads are held; the command runs once the
    others have ended.

    Args:
        check: returns whether the network works; by default, whether ``check_url`` answers.
        sleep: injected by tests.
    """

    def __init__(
        self,
        options: RedialOptions,
        clock: Clock,
        *,
        check: Check | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._options = options
        self._clock = clock
        self._check = check or self._answers
        self._sleep = sleep
        self._running = 0
        self._quiet = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        # Wall clock: expected time of the command. Valid only while new downloads are held.
        self._redials_at = 0.0
        self._current: asyncio.Task[bool] | None = None

    @contextlib.asynccontextmanager
    async def download(self) -> AsyncIterator[float]:
        """Context of one download; yields the wall-clock time of its start."""
        await self._open.wait()
        self._running += 1
        try:
            yield self._clock.time()
        finally:
            self._running -= 1
            if not self._running:
                self._quiet.set()

    def held_seconds(self) -> float:
        """Return about how long new downloads are held; 0.0 if they are not."""
        if self._open.is_set():
            return 0.0
        left = max(0.0, self._redials_at - self._clock.time())
        return left + self._options.command_seconds

    async def redial(self, started_at: float) -> bool:
        """Get a new address; return whether there is one since ``started_at``.

        Concurrent requests share one redial.
        """
        if self._current is None:
            self._current = asyncio.ensure_future(self._redial(started_at))
            self._current.add_done_callback(self._forget)
        return await asyncio.shield(self._current)

    def _forget(self, task: asyncio.Task[bool]) -> None:
        self._current = None
        if not task.cancelled() and task.exception() is not None:
            logger.error("redial failed unexpectedly", exc_info=task.exception())

    async def close(self) -> None:
        """Cancel a redial; a running command is killed."""
        if self._current is not None:
            self._current.cancel()
            await asyncio.gather(self._current, return_exceptions=True)

    async def _redial(self, started_at: float) -> bool:
        # From now on: anything sent before the redial would use the banned address.
        self._redials_at = self._clock.time() + self._options.interval_seconds
        self._open.clear()
        try:
            async with self._locked() as descriptor:
                last, worked = self._last(descriptor)
                if worked and last > started_at:
                    logger.info("another agent of this host has redialled")
                    return True
                await self._wait_for_interval(last)
                await self._drained()
                worked = False
                try:
                    worked = await self._attempts()
                finally:
                    _write(descriptor, self._clock.time(), worked)
                return worked
        except OSError as error:
            logger.error("cannot redial: %s: %s", self._options.lock, error.strerror or error)
            return False
        finally:
            self._open.set()

    @contextlib.asynccontextmanager
    async def _locked(self) -> AsyncIterator[int]:
        path = self._options.lock
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_LOCK_POLL_SECONDS)
            yield descriptor
        finally:
            os.close(descriptor)

    def _last(self, descriptor: int) -> tuple[float, bool]:
        """Return (time of the last redial of this host, 0 for never; whether it worked)."""
        with contextlib.suppress(ValueError):
            seconds, outcome = os.pread(descriptor, 64, 0).decode("ascii").split()
            last, now = float(seconds), self._clock.time()
            if last <= now:
                return last, outcome == _WORKED
            # The clock was set back, so the real age is unknown: count from now, and
            # write that to the file, or each restart would count from then.
            _write(descriptor, now, worked=False)
            return now, False
        return 0.0, False

    async def _wait_for_interval(self, last: float) -> None:
        self._redials_at = last + self._options.interval_seconds
        left = self._redials_at - self._clock.time()
        if left > 0:
            logger.info("redialling in %.0f s, after the interval", left)
            await self._sleep(left)

    async def _drained(self) -> None:
        if not self._running:
            return
        self._quiet.clear()
        logger.info("%d downloads end before the line is redialled", self._running)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._quiet.wait()

    async def _attempts(self) -> bool:
        for attempt in range(1, MOST_ATTEMPTS + 1):
            problem = await self._run()
            if not problem and not await self._check():
                problem = "the line was redialled, but the check does not answer"
            if not problem:
                logger.info("redialled (attempt %d)", attempt)
                return True
            logger.warning("redialling, attempt %d of %d: %s", attempt, MOST_ATTEMPTS, problem)
            if attempt < MOST_ATTEMPTS:
                await self._sleep(_RETRY_SECONDS)
        logger.error("not redialled, after %d attempts", MOST_ATTEMPTS)
        return False

    async def _run(self) -> str:
        """Run the command; return the error, or ""."""
        # A file, not a pipe: a background process of the command would keep a pipe open.
        with tempfile.TemporaryFile() as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._options.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            except OSError as error:
                return f"{self._options.command[0]}: {error.strerror or error}"
            try:
                async with asyncio.timeout(self._options.command_seconds):
                    status = await process.wait()
            except TimeoutError:
                return f"the command did not end within {self._options.command_seconds:.0f} s"
            finally:
                if process.returncode is None:
                    # The whole process group: a leftover must not dial during the next attempt.
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
            return f"the command ended with status {status}: {_end_of(output)}" if status else ""

    async def _answers(self) -> bool:
        if not self._options.check_url:
            return True
        status, _ = await ask(self._options.check_url)
        return 200 <= status < 400


def _write(descriptor: int, seconds: float, worked: bool) -> None:
    """Write a record of fixed length at once, so that nothing is left of the previous one."""
    outcome = _WORKED if worked else "failed"
    os.pwrite(descriptor, f"{seconds:020.3f} {outcome:>6}\n".encode("ascii"), 0)


def _end_of(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _OUTPUT_BYTES))
    return ascii(output.read(_OUTPUT_BYTES).decode("utf-8", "replace").strip())
