"""``self.files``: files that a run keeps beside its items."""

from __future__ import annotations

import hashlib
import mimetypes
import os
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol

from yardkit.items.files import LINK, MAX_FILE_BYTES, is_content_type, is_file_name
from yardkit.protocol import CHUNK_BYTES

_READ_BYTES = 1024 * 1024


class RunFile:
    """One file to keep. A file on disk is opened at once: it may be deleted afterwards.

    Raises ``ValueError`` for a name, type or size that cannot be stored, and ``OSError``.
    """

    def __init__(
        self, name: str, content: bytes | str | os.PathLike[str], content_type: str | None
    ) -> None:
        if not is_file_name(name):
            raise ValueError(
                f"{name[:100]!r} cannot name a file: use up to 500 printable characters,"
                " folders separated by /, without .. and without / at the beginning"
            )
        if content_type is None:
            content_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        if not is_content_type(content_type):
            raise ValueError(f"{name}: {content_type[:100]!r} is no media type")
        self.name = name
        self.content_type = content_type
        self._source: BinaryIO
        if isinstance(content, bytes | bytearray | memoryview):
            self.size = len(content)
            self._source = BytesIO(content)
        else:
            self._source = Path(content).open("rb")  # noqa: SIM115 - closed when it is stored
            self.size = os.fstat(self._source.fileno()).st_size
        if self.size > MAX_FILE_BYTES:
            self.close()
            raise ValueError(f"{name}: {self.size} bytes; at most {MAX_FILE_BYTES}")
        self.parts = max(1, -(-self.size // CHUNK_BYTES))

    def sha256(self) -> str:
        """Return the digest of the content, in hex. Raises ``OSError``."""
        digest = hashlib.sha256()
        self._source.seek(0)
        while data := self._source.read(_READ_BYTES):
            digest.update(data)
        return digest.hexdigest()

    def read(self, part: int) -> bytes:
        """Return one part. Raises ``OSError``, also when the file has become shorter."""
        begin = part * CHUNK_BYTES
        self._source.seek(begin)
        data = self._source.read(min(CHUNK_BYTES, self.size - begin))
        if len(data) < min(CHUNK_BYTES, self.size - begin):
            raise OSError(f"{self.name} has become shorter while it was sent")
        return data

    def close(self) -> None:
        self._source.close()


class FileSink(Protocol):
    """Destination of files."""

    def put_file(self, file: RunFile) -> None:
        """Take a file and close it when it is stored."""

    async def room(self) -> None:
        """Wait until the sink is not crowded."""


class Files:
    """Keeps files of a run by name, such as images and PDFs."""

    def __init__(self, sink: FileSink) -> None:
        self._sink = sink

    def put(
        self, name: str, content: bytes | str | os.PathLike[str], content_type: str | None = None
    ) -> str:
        """Keep a file; return the link for a field of an item, ``crawlyard-file:<name>``.

        The request of the page succeeds once its files are stored. A second file of the same name
        replaces the first.

        Args:
            name: path below the run's files, with ``/``, at most 500 characters.
            content: the bytes, or the path of a file of at most 1 GiB.
            content_type: media type; guessed from the name if not given.

        Raises ``ValueError`` for a name or size that cannot be stored, ``OSError`` for a file that
        cannot be read.
        """
        self._sink.put_file(RunFile(name, content, content_type))
        return LINK + name

    async def room(self) -> None:
        """Wait until fewer bytes are unconfirmed than the setting ``unconfirmed_bytes``.

        For coroutines that keep many files without yielding in between.
        """
        await self._sink.room()
