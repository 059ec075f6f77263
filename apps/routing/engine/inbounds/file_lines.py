"""A file of JSON lines, plain or gz, read from any position on."""

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
# Beyond what an item may have; the reader of the item refuses it for its size.
MAX_LINE_BYTES: Final = MAX_BYTES + 1
# What is looked through for depth at once.
COUNTED_BYTES: Final = 64 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """``raw`` stands from ``start``; the next line begins at ``behind``."""

    start: int
    behind: int
    raw: bytes


class LineFile:
    """One open file. Positions are bytes of the content, of what was compressed in a gz."""

    def __init__(self, path: Path, position: int = 0) -> None:
        """Raises ``OSError``: it is not there, or no regular file."""
        # A pipe would make this wait for its writer.
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
            # A gz is not changed any more, and going back in it is dear.
            self._first = self._content.read(HEAD_BYTES) if self.is_gzip else b""
            self._head = (0, "")
            self.position = position
        except BaseException:
            self._raw.close()
            raise

    def close(self) -> None:
        self._raw.close()

    def head(self, count: int) -> str:
        """A fingerprint of the first ``count`` bytes; "" when there are fewer."""
        found = self._first[:count] if self.is_gzip else os.pread(self._raw.fileno(), count, 0)
        return hashlib.sha256(found).hexdigest() if len(found) == count else ""

    def is_cut(self) -> bool:
        """Whether what was read is not there any more: the file was begun again."""
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

    def read(self, most: int, *, is_final: bool) -> list[Line]:
        """Up to ``most`` lines that are not blank.

        A last line without its line break may still grow: it is read once the file ``is_final``.
        Raises ``OSError``, ``EOFError`` or ``zlib.error`` for a damaged gz.
        """
        self._content.seek(self.position)
        found: list[Line] = []
        while len(found) < most:
            start = self.position
            try:
                raw, length, is_whole = self._line()
            except (OSError, EOFError, zlib.error):
                if found:
                    break  # those before it are good; the next call says what is wrong
                raise
            if not length or not (is_whole or is_final or self.is_gzip):
                break
            self.position = start + length
            text = raw.removeprefix(_BOM) if start == 0 else raw
            if text.strip():
                found.append(Line(start, self.position, text.rstrip(b"\r\n")))
        return found

    def _line(self) -> tuple[bytes, int, bool]:
        """The next line, cut where it is too long; its whole length; whether it has an end."""
        raw = part = self._content.readline(MAX_LINE_BYTES)
        length = len(part)
        while part and not part.endswith(b"\n"):
            part = self._content.readline(_CHUNK_BYTES)
            length += len(part)
            if len(raw) < MAX_LINE_BYTES:
                raw += part
        return raw[:MAX_LINE_BYTES], length, part.endswith(b"\n")

    def count_lines(self) -> int | None:
        """How many lines come after the position; None where that would take long."""
        if self.is_gzip or os.fstat(self._raw.fileno()).st_size > self.position + COUNTED_BYTES:
            return None
        count, at, last = 0, self.position, b"\n"
        while chunk := os.pread(self._raw.fileno(), _CHUNK_BYTES, at):
            count += chunk.count(b"\n")
            at += len(chunk)
            last = chunk[-1:]
        return count + (last != b"\n")
