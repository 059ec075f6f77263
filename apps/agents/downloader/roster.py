"""Writes and removes allocation files in a thread."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from apps.agents.downloader.store import AllocationStore
from yardkit.bridge import in_daemon_thread
from yardkit.protocol import AllocateDownloader

logger = logging.getLogger(__name__)

MAX_PROBLEMS: Final = 20
_PROBLEM_CHARACTERS: Final = 200


class Roster:
    """Which allocations belong on disk; ``settle`` and ``flush`` write the changes.

    A full or read-only disk does not keep a run from being served: a failed write is reported as a
    problem and retried.

    Args:
        store: None for an agent whose id changes at a restart.
    """

    def __init__(self, store: AllocationStore | None) -> None:
        self.problems: list[str] = []
        self._store = store
        self._unread: list[str] = []
        self._wanted: dict[int, AllocateDownloader] = {}
        # Runs with pending changes, oldest first.
        self._changed: dict[int, None] = {}
        self._failing: dict[int, str] = {}
        # One at a time, so that the last change wins.
        self._lock = asyncio.Lock()

    async def load(self) -> list[AllocateDownloader]:
        """Return the allocations of an earlier process of this agent."""
        if self._store is None:
            return []
        try:
            found = await in_daemon_thread(self._store.load)
        except OSError as error:
            logger.error("the allocation files cannot be read: %s", error)
            # Reported until the next start, which reads the files again.
            self._unread = [f"the allocation files could not be read: {_reason(error)}"]
            found = []
        self._wanted = {allocation.run: allocation for allocation in found}
        await self._collect_problems()
        return found

    def keep(self, allocation: AllocateDownloader) -> None:
        """Mark an allocation to be written."""
        self._wanted[allocation.run] = allocation
        self._changed[allocation.run] = None

    def forget(self, run: int) -> None:
        """Mark the file of a run to be removed."""
        self._wanted.pop(run, None)
        self._changed[run] = None

    async def refuse(self, run: int, reason: str) -> None:
        """Set the file of a run aside: its content is unusable."""
        self._wanted.pop(run, None)
        if self._store is not None:
            async with self._lock:
                await in_daemon_thread(self._store.set_aside, run, reason)
            await self._collect_problems()

    async def settle(self, run: int) -> bool:
        """Write or remove the file of a run; False when that failed."""
        store = self._store
        async with self._lock:
            # Read only now: it may have changed while another file was written.
            allocation = self._wanted.get(run)
            if store is None or run not in self._changed:
                self._changed.pop(run, None)
                return True
            error = await _done(store, run, allocation)
            if error is None:
                self._failing.pop(run, None)
                if self._wanted.get(run) is allocation:
                    self._changed.pop(run, None)
            else:
                self._note_failure(run, error)
        await self._collect_problems()
        return error is None

    def _note_failure(self, run: int, error: Exception) -> None:
        # To the end of the queue: one that always fails must not block the others.
        self._changed.pop(run, None)
        self._changed[run] = None
        if self._failing.get(run) != _reason(error):
            self._failing[run] = _reason(error)
            logger.error("run %d: its allocation file cannot be kept: %s", run, error)

    async def flush(self) -> None:
        """Settle all pending changes, and check whether set-aside files still exist."""
        for run in list(self._changed):
            if not await self.settle(run):
                break  # a disk that is full refuses the others as well; again at the next turn
        await self._collect_problems()

    async def _collect_problems(self) -> None:
        """Collect the problems for the next heartbeat."""
        if self._store is None:
            return
        # Looks at the disk only if a file was set aside, which is rare.
        bad = await in_daemon_thread(self._store.bad_files) if self._store.has_bad_files else {}
        problems = self._unread + [
            f"allocation file {name}: {reason}" for name, reason in bad.items()
        ]
        problems += [
            f"run {run}: its allocation file cannot be kept: {reason}"
            for run, reason in self._failing.items()
        ]
        more = len(problems) - MAX_PROBLEMS
        if more > 0:
            problems[MAX_PROBLEMS - 1 :] = [f"and {more + 1} more problems"]
        self.problems = [problem[:_PROBLEM_CHARACTERS] for problem in problems]


async def _done(
    store: AllocationStore, run: int, allocation: AllocateDownloader | None
) -> Exception | None:
    """Write or remove one file; return the error, if any."""
    try:
        if allocation is None:
            await in_daemon_thread(store.remove, run)
        else:
            await in_daemon_thread(store.save, allocation)
    except OSError as error:
        return error
    except Exception as error:  # the last guard: no defect of this may keep a run from being served
        logger.exception("allocation file not written, unexpected error")
        return error
    return None


def _reason(error: Exception) -> str:
    words = error.strerror if isinstance(error, OSError) else None
    return words or type(error).__name__
