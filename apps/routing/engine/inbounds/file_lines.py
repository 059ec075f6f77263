"""Reader of JSON Lines files, plain or gzip, from any position."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import zlib
from pathlib import Path
from typing import IO, Final, NamedTuple

from apps.routing.engine.items import MAX_BYTES

HEAD_BYTES: Final = 1024
# One more than the limit of an item, so that ``read_item`` rejects a truncated line for its size.
MAX_LINE_BYTES: Final = MAX_BYTES + 1
# Maximum number of bytes that are scanned to count lines.
COUNTED_BYTES: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"


class FileLine(NamedTuple):
    """Line that begins at offset ``start``; the next line begins at ``behind``."""

    start: int
    behind: int
    raw: bytes


class LineFile:
    """Open JSON Lines file. Positions are byte offsets of the (uncompressed) content."""

    def __init__(self, path: Path, position: int = 0) -> None:
        """Raise ``OSError`` if the path does not exist or is not a regular file."""
        # Non-blocking, because opening a named pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._raw: IO[bytes] = os.fdopen(descriptor, "rb")
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(f"{path.name} is no file")
            self.path = path
            self.identity = (status.st_dev, status.st_ino)
            self.is_gzip = os.pread(descriptor, len(_GZIP), 0) == _GZIP
            self._content: IO[bytes] = (
                gzip.GzipFile(fileobj=self._raw) if self.is_gzip else self._raw  # type: ignore[assignment]
            )
            # Read once: a gzip file does not change, and seeking backwards in it is expensive.
            self._first = self._content.read(HEAD_BYTES) if self.is_gzip else b""
            self._head = (0, "")
            self.position = position
        except BaseException:
            self._raw.close()
            raise

    def close(self) -> None:
        self._raw.close()

    def head(self, count: int) -> str:
        """Return the SHA-256 of the first ``count`` bytes; "" if the file is shorter."""
        start = self._first[:count] if self.is_gzip else os.pread(self._raw.fileno(), count, 0)
        return hashlib.sha256(start).hexdigest() if len(start) == count else ""

    def is_cut(self) -> bool:
        """Return whether the file was truncated or overwritten since the last call."""
        if self.is_gzip:
            return False
        if os.fstat(self._raw.fileno()).st_size < self.position:
            return True
        count, before = self._head
        if count and self.head(count) != before:
            return True
        count = min(self.position, HEAD_BYTES)
        if count != self._head[0]:
            self._head = (count, self.head(count))
        return False

    def read(self, most: int, *, is_final: bool) -> list[FileLine]:
        """Return up to ``most`` lines that are not blank.

        A last line without a line break may be incomplete; it is returned only if ``is_final``, or
        if the file is compressed. Raises ``OSError``, ``EOFError`` or ``zlib.error`` for a damaged
        gzip file.
        """
        self._content.seek(self.position)
        lines: list[FileLine] = []
        while len(lines) < most:
            start = self.position
            try:
                raw, length, is_whole = self._line()
            except (OSError, EOFError, zlib.error):
                if lines:
                    break  # return the lines before the damage; the next call raises the error
                raise
            if not length or not (is_whole or is_final or self.is_gzip):
                break
            self.position = start + length
            text = raw.removeprefix(_BOM) if start == 0 else raw
            if text.strip():
                lines.append(FileLine(start, self.position, text.rstrip(b"\r\n")))
        return lines

    def _line(self) -> tuple[bytes, int, bool]:
        """Return the next line (truncated if too long), its full length, and if it is complete."""
        raw = part = self._content.readline(MAX_LINE_BYTES)
        length = len(part)
        while part and not part.endswith(b"\n"):
            part = self._content.readline(_CHUNK_BYTES)
            length += len(part)
            if len(raw) < MAX_LINE_BYTES:
                raw += part
        return raw[:MAX_LINE_BYTES], length, part.endswith(b"\n")

    def count_lines(self) -> int | None:
        """Return the number of lines after the position; None if counting would take long."""
        if self.is_gzip or os.fstat(self._raw.fileno()).st_size > self.position + COUNTED_BYTES:
            return None
        count, at, last = 0, self.position, b"\n"
        while chunk := os.pread(self._raw.fileno(), _CHUNK_BYTES, at):
            count += chunk.count(b"\n")
            at += len(chunk)
            last = chunk[-1:]
        return count + (last != b"\n")
