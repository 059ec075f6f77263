"""Where the lines of a run come from: any ``LogSource``; ``FileLog`` is that of a local process."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

# One read, which becomes one message.
BATCH_LINES: Final = 500
BATCH_BYTES: Final = 256 * 1024
# A longer line is cut, and says so; one without any end counts as ended after so much.
LINE_BYTES: Final = 16 * 1024
ENDLESS_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogLineRead:
    """A complete line. ``at`` is Unix seconds, ``source`` such as stdout or stderr.

    ``mark``: by which its source finds it again, where that is ``Resumable``.
    """

    at: float
    source: str
    text: str
    mark: str = ""


class LogSource(Protocol):
    """What one execution of a run writes, from its first line on and always in the same order."""

    def read(self, *, last: bool = False) -> Sequence[LogLineRead]:
        """Complete lines since the last read, a bounded number; none when there are no more yet.

        Never blocks. ``last``: nothing will be written any more, so that in the end a last line
        without an end counts too.
        """

    @property
    def ended(self) -> bool:
        """After a last read without lines: whether that was all, or more is on its way."""

    def close(self) -> None:
        """Let go of it."""


@runtime_checkable
class Resumable(Protocol):
    """A source that may forget its oldest lines, so that they cannot be counted anew."""

    def resume(self, mark: str) -> None:
        """Before the first read: begin behind the line of this mark."""


class FileLog:
    """The output of a local process, in a file that belongs to one execution alone.

    The file may come later, and holds any bytes. One that shrinks is read from its beginning.
    """

    def __init__(self, path: Path, *, source: str = "stdout") -> None:
        self._path = path
        self._source = source
        self._descriptor: int | None = None
        self._position = 0
        self._lines: deque[bytes] = deque()
        # The beginning of a line whose end is not there yet, never more than can be shown.
        self._begun = bytearray()
        self._begun_bytes = 0

    def read(self, *, last: bool = False) -> list[LogLineRead]:
        """Up to ``BATCH_LINES`` lines, from at most ``ENDLESS_BYTES`` of the file."""
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
        """A file has all of it."""
        return True

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _fill(self) -> bool:
        """Read a piece of the file; False at its end."""
        if self._descriptor is None and not self._open():
            return False
        assert self._descriptor is not None  # noqa: S101 - opened above
        if os.fstat(self._descriptor).st_size < self._position:
            self._position = self._begun_bytes = 0
            self._begun.clear()
        # Never beyond the end of an endless line: whoever reads again must find the same lines.
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
        # A run may leave a link or a pipe there: no link is followed, nobody waits for a writer.
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
        # One byte more than is shown, by which a long line is known.
        self._begun += piece[: LINE_BYTES + 1 - len(self._begun)]
        self._begun_bytes += len(piece)

    def _end_line(self, piece: bytes) -> None:
        self._begin(piece)
        self._lines.append(bytes(self._begun).removesuffix(b"\r"))
        self._begun.clear()
        self._begun_bytes = 0
