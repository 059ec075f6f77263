"""Extraction in child processes with limits on time and memory.

Some XPath expressions take minutes on some pages (``div div p`` on many nested ``div``), and
libxml2 cannot be interrupted. A child that exceeds a limit is killed: its request fails with
``too_slow`` or ``crashed``, and the next page gets a new child.
"""

from __future__ import annotations

import atexit
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Any, Final

import msgspec

from apps.requeststore.extraction.matches import RuleMatches
from apps.requeststore.extraction.page import ResponsePage
from apps.requeststore.extraction.problems import PageProblem
from apps.requeststore.extraction.process_messages import (
    ExtractionJob,
    JobAnswer,
    read_frame,
    write_frame,
)
from apps.requeststore.extraction.rules import Extracted

CPU_SECONDS: Final = 10.0
MEMORY_BYTES: Final = 1024 * 1024 * 1024
# Wall-clock limit, generous for a busy machine; it only ends a hung child.
_WALL_FACTOR: Final = 12
_MODULE: Final = "apps.requeststore.extraction.process_child"
_KEPT: Final = 100
_START_SECONDS: Final = 60.0


class ExtractionProcess:
    """One child process that reads one page at a time. One thread at a time may use it.

    ``cpu_seconds``: for each page. The child starts with the first page, and ends with ``close``
    or with its parent.
    """

    def __init__(
        self, *, cpu_seconds: float = CPU_SECONDS, memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self._cpu_seconds = cpu_seconds
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self._decoder = msgspec.msgpack.Decoder(JobAnswer)

    def extract(self, key: str, rules: dict[str, Any], name: str, page: ResponsePage) -> Extracted:
        """Return ``compile_rules(rules).extract(name, page)``, run in the child. Raises nothing.

        ``key`` identifies the rules, which are sent once.
        """
        answer = self._ask(key, rules, ExtractionJob(key=key, name=name, page=page))
        if isinstance(answer, str):
            return _failed(answer, self._cpu_seconds)
        return answer.extracted or _failed("crashed", 0)

    def explain(
        self, key: str, rules: dict[str, Any], name: str, page: ResponsePage
    ) -> RuleMatches:
        """Return ``matches.explain``, run in the child; ``extracted`` has failed on a
        timeout.
        """
        answer = self._ask(key, rules, ExtractionJob(key=key, name=name, page=page, explain=True))
        if isinstance(answer, str):
            return RuleMatches(extracted=_failed(answer, self._cpu_seconds))
        return answer.explained or RuleMatches(extracted=_failed("crashed", 0))

    @property
    def pid(self) -> int | None:
        """Return the child's process ID; None while there is none."""
        return self._process.pid if self._process is not None else None

    def close(self) -> None:
        """Kill the child; the next page starts another."""
        with self._lock:
            self._end()

    def __enter__(self) -> ExtractionProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- its process ----------------------------------------------------------------------------

    def _ask(self, key: str, rules: dict[str, Any], job: ExtractionJob) -> JobAnswer | str:
        """Return the answer, or the reason why there is none."""
        with self._lock:
            try:
                process = self._running()
                if key not in self._known:
                    job = msgspec.structs.replace(job, rules=rules)
                raw = msgspec.msgpack.encode(job)
                assert process.stdin is not None  # noqa: S101 - it was started with pipes
                write_frame(process.stdin, raw)
                answer = self._decoder.decode(self._receive(process))
            except (OSError, EOFError, msgspec.DecodeError):
                return self._ended()
            except (TypeError, ValueError, OverflowError, RecursionError):
                # Rules or page cannot be serialized: nothing was sent.
                return "not_readable"
            if len(self._known) >= _KEPT:
                # The child drops its rules as well, see ``process_child``.
                self._known.clear()
            self._known.add(key)
            return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        # A minimal environment: no secret of this process is passed on.
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LC_ALL": "C.UTF-8"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(self._cpu_seconds), str(self._memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        return self._process

    def _receive(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None  # noqa: S101 - it was started with pipes
        until = time.monotonic() + _START_SECONDS + self._cpu_seconds * _WALL_FACTOR
        return read_frame(_Timed(process.stdout, until))

    def _ended(self) -> str:
        """Return why the child ended, and forget it."""
        process = self._process
        code: int | None = None
        if process is not None:
            try:
                code = process.wait(1.0)
            except subprocess.TimeoutExpired:
                code = None
        self._end()
        if code in (None, -signal.SIGPROF, -signal.SIGXCPU):
            return "too_slow"
        return "crashed"

    def _end(self) -> None:
        process, self._process = self._process, None
        self._known.clear()
        if process is None:
            return
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    # Unread input.
                    continue


class _Timed:
    """Reader of a pipe that raises ``EOFError`` at a timeout."""

    def __init__(self, pipe: IO[bytes], until: float) -> None:
        self._pipe = pipe
        self._until = until

    def read(self, size: int) -> bytes:
        left = max(0.0, self._until - time.monotonic())
        if not select.select([self._pipe], [], [], left)[0]:
            raise EOFError
        return os.read(self._pipe.fileno(), size)


def _failed(code: str, seconds: float) -> Extracted:
    text = {
        "too_slow": f"reading the page took more than {seconds:g} s of CPU time",
        "crashed": "the process that read the page ended: too little memory, or a fault",
        "not_readable": "the page cannot be handed to the process that reads",
    }[code]
    return Extracted(problems=[PageProblem(code=code, text=text, fatal=True)], failed=True)


class ExtractionPool:
    """Pool of child processes for many threads; a thread waits for a free one."""

    def __init__(self, count: int, *, cpu_seconds: float = CPU_SECONDS) -> None:
        self._boxes = [ExtractionProcess(cpu_seconds=cpu_seconds) for _ in range(count)]
        self._free: queue.SimpleQueue[ExtractionProcess] = queue.SimpleQueue()
        for box in self._boxes:
            self._free.put(box)

    def extract(self, key: str, rules: dict[str, Any], name: str, page: ResponsePage) -> Extracted:
        """As ``ExtractionProcess.extract``."""
        box = self._free.get()
        try:
            return box.extract(key, rules, name, page)
        finally:
            self._free.put(box)

    @property
    def pids(self) -> list[int]:
        """Return the process IDs of the children."""
        return [box.pid for box in self._boxes if box.pid is not None]

    def __enter__(self) -> ExtractionPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill all children, after the pages in progress."""
        for box in self._boxes:
            box.close()


class _SharedPool:
    """Pool of this process, made at the first use."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.boxes: ExtractionPool | None = None


_shared: Final = _SharedPool()


def shared_extraction_pool() -> ExtractionPool:
    """Return the pool of this process: one child for each processor, at most four."""
    with _shared.lock:
        if _shared.boxes is None:
            _shared.boxes = ExtractionPool(min(4, os.cpu_count() or 1))
        return _shared.boxes


def close_shared_extraction_pool() -> None:
    """Kill the children; the next use makes a new pool."""
    with _shared.lock:
        boxes, _shared.boxes = _shared.boxes, None
    if boxes is not None:
        boxes.close()


# Without an explicit close, no child outlives this process.
atexit.register(close_shared_extraction_pool)
