"""Inbound for a JSON Lines file, for replays and for logs of other programs.

The read offset is stored on disk. After a rotation the renamed file is read to its end, then any
files rotated in between, then the new file. A truncated file is read from its beginning. One
process reads at a time; others wait until it exits.
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
from apps.routing.engine.inbounds.file_lines import HEAD_BYTES, FileLine, LineFile
from apps.routing.engine.inbounds.file_state import InboundFileState, Mark
from apps.routing.engine.inbounds.urls import has_placeholder

logger = logging.getLogger(__name__)

# Interval of polling a file that has no new lines.
_LOOK_SECONDS: Final = 0.2
# Minimum interval between two saves of the read offset.
_SAVE_SECONDS: Final = 0.25


class FilePosition(NamedTuple):
    """Handle of an item: number of the file part and offset of the line."""

    part: int
    start: int


@dataclass(slots=True)
class _Part:
    """File being read, or read with unacknowledged items."""

    number: int
    file: LineFile
    log: Contiguous
    out: dict[int, Taken] = field(default_factory=dict)
    # Whether the file was rotated, so that no more lines are appended.
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
        self._state = InboundFileState(context.state, context.name)
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
        """Always 0: no other consumer reads the file at the same time."""
        return 0

    def take(self, most: int, timeout: float) -> list[Taken]:
        deadline = time.monotonic() + timeout
        while True:
            with self._lock:
                if self._closed.is_set():
                    raise InboundClosed(self._named)
                taken = self._take(most)
            left = deadline - time.monotonic()
            if taken or left <= 0:
                return taken
            self._closed.wait(min(left, _LOOK_SECONDS))

    def ack(self, handles: Sequence[Handle]) -> None:
        with self._lock:
            for handle in handles:
                part = self._part_of(handle)
                if part is None or not isinstance(handle, FilePosition):
                    continue
                if part.out.pop(handle.start, None) is not None:
                    part.log.finish(handle.start)
            self._try(self._save_if_due)

    def back(self, handles: Sequence[Handle]) -> None:
        with self._lock:
            given: list[Taken] = []
            for handle in sorted(handle for handle in handles if isinstance(handle, FilePosition)):
                part = self._part_of(handle)
                taken = part.out.pop(handle.start, None) if part is not None else None
                if taken is not None:
                    given.append(replace(taken, redelivered=True))
            self._spare.extendleft(reversed(given))

    def depth(self) -> int | None:
        """Return the number of unread lines of the current file.

        None for a gzip file, and if more than 64 MiB are unread.
        """
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
        taken_entries = [self._spare.popleft() for _ in range(min(max(count, 0), len(self._spare)))]
        for taken in taken_entries:
            part = self._part_of(taken.handle)
            if part is not None and isinstance(taken.handle, FilePosition):
                part.out[taken.handle.start] = taken
        return taken_entries

    def _try(self, what: Callable[[], object]) -> bool:
        """Call ``what`` and return whether it succeeded; set ``problem`` to the error if not."""
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
        """Open the file of the mark, even if it was renamed, or else the configured one."""
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
                # The writer may have appended a line before the rename: read once more.
                part.is_over = self._is_replaced(part)
                if not part.is_over:
                    return
                continue
            following = self._next()
            if following is None:
                return
            self._add(self._open(following))

    def _is_replaced(self, part: _Part) -> bool:
        """Return whether the configured path is a different file now; False if none exists."""
        if part.file.path != self._path:
            return True
        try:
            return _identity(self._path) != part.file.identity
        except FileNotFoundError:
            return False

    def _next(self) -> Path | None:
        """Return the file that follows the rotated one; None if it does not exist yet."""
        chain = self._chain()
        for path, following in itertools.pairwise(chain):
            if _identity(path) == self._parts[-1].file.identity:
                return following
        # The rotated file was deleted or compressed, or it is the newest one.
        return self._path if self._path in chain else None

    def _chain(self) -> list[Path]:
        """Return the rotated predecessors of the configured file, oldest first, and the file."""
        name = re.compile(re.escape(self._path.name) + r"[.-]\d[\d.-]*(\.gz)?")
        folder = self._path.parent
        older = [path for path in folder.iterdir() if name.fullmatch(path.name) and path.is_file()]
        older.sort(key=lambda path: path.stat().st_mtime_ns)
        return [*older, self._path] if self._path.exists() else older

    def _open(self, path: Path) -> LineFile:
        self._inside(path)
        return LineFile(path)

    def _inside(self, path: Path) -> None:
        """Raise ``PermissionError`` if ``path`` is outside the folder for files.

        Users who may edit rules must not be able to read any file of the host.
        """
        if not path.resolve().is_relative_to(self._base):
            raise PermissionError(f"{self._named} is not below the folder for files")

    def _add(self, file: LineFile) -> None:
        self._made += 1
        self._parts.append(_Part(self._made, file, Contiguous(file.position)))

    def _taken(self, part: _Part, line: FileLine) -> Taken:
        part.log.add(line.start, line.behind)
        where = f"{part.file.path.name}:{line.start}"
        return Taken(line.raw, FilePosition(part.number, line.start), where)

    def _part_of(self, handle: Handle) -> _Part | None:
        if isinstance(handle, FilePosition):
            for part in self._parts:
                if part.number == handle.part:
                    return part
        return None

    # --- read offset ---------------------------------------------------------------------------

    def _save_if_due(self) -> None:
        if time.monotonic() >= self._save_at:
            self._save()

    def _save(self) -> None:
        """Store the offset of the oldest file that has unfinished lines; close those before."""
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
    """Return whether a mark belongs to a file; a compressed file is identified by its head."""
    same = file.identity == (mark.device, mark.inode)
    return file.head(mark.head_bytes) == mark.head and (same or mark.head_bytes == HEAD_BYTES)
