"""Items of a file of JSON lines: for replays, and for logs of other programs.

How far it has come is kept on disk. A file that was renamed away is read to its end first, then
what came between, then the new one; a file that was cut is read from its beginning. One process
reads at a time: the others wait for its end.
"""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, ClassVar, Final, NamedTuple

from apps.routing.engine.inbounds.base import (
    BadInit,
    Context,
    Finding,
    Handle,
    InboundClosed,
    Parameter,
    Taken,
)
from apps.routing.engine.inbounds.contiguous import Contiguous
from apps.routing.engine.inbounds.file_lines import HEAD_BYTES, Line, LineFile
from apps.routing.engine.inbounds.file_state import Mark, State
from apps.routing.engine.inbounds.urls import has_placeholder

logger = logging.getLogger(__name__)

# How often a file is looked at that has nothing new.
_LOOK_SECONDS: Final = 0.2
# A mark is on the disk so soon after an ack.
_SAVE_SECONDS: Final = 0.25


class Position(NamedTuple):
    """The handle of an item."""

    part: int
    start: int


@dataclass(slots=True)
class _Part:
    """One file on the way, from ``file.position`` when it was opened."""

    number: int
    file: LineFile
    log: Contiguous
    out: dict[int, Taken] = field(default_factory=dict)
    # It is not written any more.
    is_over: bool = False


class FileInbound:
    """See ``base.Inbound``."""

    PARAMETERS: ClassVar[tuple[Parameter, ...]] = (
        Parameter("path", str, "the file, below the folder for such files", required=True),
        Parameter(
            "follow",
            bool,
            "wait for the line break of the last line; false: the file is complete",
            default=True,
        ),
    )

    @classmethod
    def check(cls, init: Mapping[str, Any]) -> list[tuple[str, Finding]]:
        path = init["path"]
        problem = ""
        if has_placeholder(path):
            return []
        if not path or "\0" in path:
            problem = "the path names no file"
        elif ".." in PurePath(path).parts:
            problem = "the path has .. in it"
        return [("path", Finding("bad_parameter", problem))] if problem else []

    def __init__(self, context: Context, init: Mapping[str, Any]) -> None:
        self._named: str = init["path"]
        self._follows: bool = init.get("follow", True)
        self._base = context.files.resolve()
        self._path: Path = self._base / self._named
        self._limit = context.in_flight
        self._state = State(context.state, context.name)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._parts: deque[_Part] = deque()
        self._made = 0
        self._spare: deque[Taken] = deque()
        self._saved: Mark | None = None
        self._save_at = 0.0
        self._problem = ""
        self._lost = ""
        try:
            self._inside(self._path)
        except PermissionError as error:
            raise BadInit(str(error)) from None

    @property
    def problem(self) -> str:
        return self._problem

    @property
    def late(self) -> int:
        """Always 0: no other one reads while this one does."""
        return 0

    def take(self, most: int, timeout: float) -> list[Taken]:
        deadline = time.monotonic() + timeout
        while True:
            with self._lock:
                if self._closed.is_set():
                    raise InboundClosed(self._named)
                found = self._take(most)
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            self._closed.wait(min(left, _LOOK_SECONDS))

    def ack(self, handles: Sequence[Handle]) -> None:
        with self._lock:
            for handle in handles:
                part = self._part_of(handle)
                if part is None or not isinstance(handle, Position):
                    continue
                if part.out.pop(handle.start, None) is not None:
                    part.log.finish(handle.start)
            self._try(self._save_if_due)

    def back(self, handles: Sequence[Handle]) -> None:
        with self._lock:
            given: list[Taken] = []
            for handle in sorted(each for each in handles if isinstance(each, Position)):
                part = self._part_of(handle)
                taken = part.out.pop(handle.start, None) if part is not None else None
                if taken is not None:
                    given.append(replace(taken, redelivered=True))
            self._spare.extendleft(reversed(given))

    def depth(self) -> int | None:
        """Lines of the file that is being read; None of a gz and of more than 64 MiB."""
        with self._lock:
            if self._closed.is_set() or not self._try(self._ready):
                return None
            try:
                lines = self._parts[-1].file.count_lines()
            except OSError:
                return None
            return None if lines is None else lines + len(self._spare)

    def check_running(self, threads: int) -> list[Finding]:
        return [Finding("file_lost", self._lost)] if self._lost else []

    def close(self) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            self._try(self._save)
            for part in self._parts:
                part.file.close()
            self._parts.clear()
            self._state.release()

    # --- reading -------------------------------------------------------------------------------

    def _take(self, most: int) -> list[Taken]:
        if not self._try(self._ready):
            return []
        count = min(most, self._limit - sum(len(part.out) for part in self._parts))
        if count > 0 and not self._spare:
            self._try(lambda: self._read(count))
        found = [self._spare.popleft() for _ in range(min(max(count, 0), len(self._spare)))]
        for taken in found:
            part = self._part_of(taken.handle)
            if part is not None and isinstance(taken.handle, Position):
                part.out[taken.handle.start] = taken
        return found

    def _try(self, what: Callable[[], object]) -> bool:
        """Whether it could be done; if not, ``problem`` says why."""
        try:
            what()
        except (OSError, EOFError, zlib.error) as error:
            text = error.strerror if isinstance(error, OSError) else None
            self._problem = f"{self._named}: {text or error}"
            return False
        self._problem = ""
        return True

    def _ready(self) -> None:
        if not self._parts:
            if not self._state.acquire():
                raise OSError("another router reads it")
            mark = self._state.load()
            self._begin(mark if mark is not None and mark.path == self._named else None)
        self._save_if_due()

    def _begin(self, mark: Mark | None) -> None:
        """Open the file that the mark speaks of, wherever it is now, or else the named one."""
        if mark is not None:
            for path in self._chain():
                file = self._open(path)
                if _is_of(mark, file):
                    file.position = mark.offset
                    self._add(file)
                    return
                file.close()
            if mark.offset:
                self._lost = (
                    f"{self._named}: what was read up to byte {mark.offset} is not there any more"
                )
                logger.warning("%s", self._lost)
        self._add(self._open(self._path))

    def _read(self, count: int) -> None:
        while True:
            part = self._parts[-1]
            if part.file.is_cut():
                self._add(self._open(self._path))
                continue
            lines = part.file.read(count, is_final=part.is_over or not self._follows)
            self._spare.extend(self._taken(part, line) for line in lines)
            if lines:
                return
            if not part.is_over:
                # Its writer may have added a line before it was renamed: read once more.
                part.is_over = self._is_replaced(part)
                if not part.is_over:
                    return
                continue
            following = self._next()
            if following is None:
                return
            self._add(self._open(following))

    def _is_replaced(self, part: _Part) -> bool:
        """Whether the file of that name is another one; while there is none, not yet."""
        if part.file.path != self._path:
            return True
        try:
            return _identity(self._path) != part.file.identity
        except FileNotFoundError:
            return False

    def _next(self) -> Path | None:
        """The file that came after the one that is over; None while there is none."""
        chain = self._chain()
        for path, following in itertools.pairwise(chain):
            if _identity(path) == self._parts[-1].file.identity:
                return following
        # It was deleted or packed; or it is the last of all.
        return self._path if self._path in chain else None

    def _chain(self) -> list[Path]:
        """What the named file was before it was renamed, the oldest first, and the file itself."""
        name = re.compile(re.escape(self._path.name) + r"[.-]\d[\d.-]*(\.gz)?")
        folder = self._path.parent
        older = [path for path in folder.iterdir() if name.fullmatch(path.name) and path.is_file()]
        older.sort(key=lambda path: path.stat().st_mtime_ns)
        return [*older, self._path] if self._path.exists() else older

    def _open(self, path: Path) -> LineFile:
        self._inside(path)
        return LineFile(path)

    def _inside(self, path: Path) -> None:
        """Rules are written by people who may not read every file of this host."""
        if not path.resolve().is_relative_to(self._base):
            raise PermissionError(f"{self._named} is not below the folder for files")

    def _add(self, file: LineFile) -> None:
        self._made += 1
        self._parts.append(_Part(self._made, file, Contiguous(file.position)))

    def _taken(self, part: _Part, line: Line) -> Taken:
        part.log.add(line.start, line.behind)
        where = f"{part.file.path.name}:{line.start}"
        return Taken(line.raw, Position(part.number, line.start), where)

    def _part_of(self, handle: Handle) -> _Part | None:
        if isinstance(handle, Position):
            for part in self._parts:
                if part.number == handle.part:
                    return part
        return None

    # --- remembering ---------------------------------------------------------------------------

    def _save_if_due(self) -> None:
        if time.monotonic() >= self._save_at:
            self._save()

    def _save(self) -> None:
        """The oldest file that is not done with says how far we are."""
        while len(self._parts) > 1 and not len(self._parts[0].log):
            self._parts.popleft().file.close()
        if not self._parts:
            return
        part = self._parts[0]
        offset = part.log.safe or 0
        count = min(offset, HEAD_BYTES)
        mark = Mark(self._named, *part.file.identity, offset, part.file.head(count), count)
        if mark == self._saved:
            return
        self._state.save(mark)
        self._saved = mark
        self._save_at = time.monotonic() + _SAVE_SECONDS


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _is_of(mark: Mark, file: LineFile) -> bool:
    """Whether the mark speaks of this file; one that was packed is known by its beginning."""
    same = file.identity == (mark.device, mark.inode)
    return file.head(mark.head_bytes) == mark.head and (same or mark.head_bytes == HEAD_BYTES)
