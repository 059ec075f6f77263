"""Sources of run output: the interface ``LogSource``, and the files of local processes."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

# Lines per read, which become one message.
BATCH_LINES: Final = 500
BATCH_BYTES: Final = 256 * 1024
# Lines beyond the first limit are cut and marked; a line ends at the second limit.
LINE_BYTES: Final = 16 * 1024
ENDLESS_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogLineRead:
    """Complete line of output. ``at``: Unix seconds; ``source``: stdout or stderr.

    ``mark``: position for a ``Resumable`` source.
    """

    at: float
    source: str
    text: str
    mark: str = ""


class LogSource(Protocol):
    """Output of one execution, from its first line and in the same order each time."""

    def read(self, *, last: bool = False) -> Sequence[LogLineRead]:
        """Return a limited number of complete lines since the last read. Never blocks.

        ``last``: no more output will be written, so that an unterminated last line is returned too.
        """

    @property
    def ended(self) -> bool:
        """Whether all output was read; valid after a read with ``last`` returned no lines."""

    def close(self) -> None:
        """Release the resources of the source."""


@runtime_checkable
class Resumable(Protocol):
    """Source that may drop its oldest lines, so that lines cannot be identified by counting."""

    def resume(self, mark: str) -> None:
        """Start after the line with this mark; called before the first read."""


class FileLog:
    """Output of a local process, in a file for each execution.

    The file may be created later and contain any bytes. A file that shrinks is read again.
    """

    def __init__(self, path: Path, *, source: str = "stdout") -> None:
        self._path = path
        self._source = source
        self._descriptor: int | None = None
        self._position = 0
        self._lines: deque[bytes] = deque()
        # Beginning of an incomplete line, limited to the characters that are shipped.
        self._begun = bytearray()
        self._begun_bytes = 0

    def read(self, *, last: bool = False) -> list[LogLineRead]:
        """Return up to ``BATCH_LINES`` lines, from at most ``ENDLESS_BYTES`` of the file."""
        while not self._lines and self._fill():
            pass
        if last and not self._lines and self._begun:
            self._end_line(b"")
        at = time.time()
        count = min(BATCH_LINES, len(self._lines))
        return [
            LogLineRead(at, self._source, self._lines.popleft().decode("utf-8", "replace"))
            for _ in range(count)
        ]

    @property
    def ended(self) -> bool:
        """Always true: a read returns everything in the file."""
        return True

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _fill(self) -> bool:
        """Read a piece of the file; return False at its end."""
        if self._descriptor is None and not self._open():
            return False
        assert self._descriptor is not None  # noqa: S101 - opened above
        if os.fstat(self._descriptor).st_size < self._position:
            self._position = self._begun_bytes = 0
            self._begun.clear()
        # Do not read beyond the end of an endless line: a repeated read must return the same lines.
        size = min(BATCH_BYTES, ENDLESS_BYTES - self._begun_bytes)
        chunk = os.pread(self._descriptor, size, self._position)
        self._position += len(chunk)
        *ended, begun = chunk.split(b"\n")
        for piece in ended:
            self._end_line(piece)
        self._begin(begun)
        if self._begun_bytes == ENDLESS_BYTES:
            self._end_line(b"")
        return bool(chunk)

    def _open(self) -> bool:
        # A run may replace the file by a link or a pipe: do not follow links, and do not block on
        # opening.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags)
        except OSError:
            return False
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def _begin(self, piece: bytes) -> None:
        # One byte more than the limit, so that a cut is recognised.
        self._begun += piece[: LINE_BYTES + 1 - len(self._begun)]
        self._begun_bytes += len(piece)

    def _end_line(self, piece: bytes) -> None:
        self._begin(piece)
        self._lines.append(bytes(self._begun).removesuffix(b"\r"))
        self._begun.clear()
        self._begun_bytes = 0
