"""Output of a run: its items and its exit state."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

import msgspec

from yardkit.items.requests import RequestRow
from yardspider.errors import RunFailed
from yardspider.files import FileSink, RunFile
from yardspider.item_lines import ItemEncoder

log = logging.getLogger("yardspider")

ITEMS_FILE = "items.jsonl"
EXIT_FILE = "exit.json"
_BUFFER_BYTES = 1024 * 1024


class ItemSink(FileSink, Protocol):
    """Destination of items and files.

    ``failure``: why the run cannot go on.
    ``keeps_requests``: whether the rows of ended requests are kept.
    """

    failure: RunFailed | None
    keeps_requests: bool

    def put_request(self, row: RequestRow) -> None:
        """Take the row of an ended request; it is stored after the items taken before."""

    def flush_requests(self) -> None:
        """Send the rows that wait."""

    def add(self, item: dict[str, Any], url: str = "") -> None:
        """Take an item found on the page ``url``.

        Raises ``TypeError`` when it cannot be written as JSON.
        """

    def flush(self) -> None:
        """Write or send what waits. Raises ``RunFailed`` when that fails."""

    @property
    def taken(self) -> int:
        """Number of items and files taken."""

    @property
    def crowded(self) -> bool:
        """Whether callbacks must wait for room."""

    @property
    def unconfirmed(self) -> int:
        """Number of items and files that are not stored yet."""

    @property
    def waiting(self) -> int:
        """Number of requests whose items or files are not stored yet."""

    def connect(self, transport: Any, ring: Callable[[], None]) -> None:
        """Use the transport of the run; ``ring`` is called when items are stored."""

    def after(self, work: Callable[[], None]) -> None:
        """Call ``work`` once all items and files taken so far are stored."""

    async def finish(self, limit_seconds: float) -> None:
        """Store everything. Raises ``RunFailed``."""


class StoredAtOnce:
    """Base of sinks that keep an item when they take it, and discard files."""

    def __init__(self) -> None:
        self.taken = 0
        self._has_warned = False

    failure: RunFailed | None = None
    keeps_requests = False
    crowded = False
    unconfirmed = 0
    waiting = 0

    def connect(self, transport: Any, ring: Callable[[], None]) -> None:
        pass

    def flush(self) -> None:
        pass

    def after(self, work: Callable[[], None]) -> None:
        work()

    def put_request(self, row: RequestRow) -> None:
        pass

    def flush_requests(self) -> None:
        pass

    def put_file(self, file: RunFile) -> None:
        file.close()
        if not self._has_warned:
            self._has_warned = True
            log.warning("files are not kept: a local run keeps them with --dataset FOLDER")

    async def room(self) -> None:
        pass

    async def finish(self, limit_seconds: float) -> None:
        self.flush()


class ItemList(StoredAtOnce):
    """Items and files in memory, for tests."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self._encoder = ItemEncoder({})

    def add(self, item: dict[str, Any], url: str = "") -> None:
        # What the platform cannot store fails in a test as well.
        self._encoder.line(item, url)
        self.items.append(item)
        self.taken += 1

    def put_file(self, file: RunFile) -> None:
        self.files[file.name] = b"".join(map(file.read, range(file.parts)))
        file.close()
        self.taken += 1


class NoItems(StoredAtOnce):
    """Discards items; they are only counted."""

    def add(self, item: dict[str, Any], url: str = "") -> None:
        self.taken += 1


class ItemFile(StoredAtOnce):
    """JSON lines, appended; written in blocks and at each ``flush``.

    Raises ``RunFailed`` that names the file when it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._encoder = msgspec.json.Encoder()
        self._lines: list[bytes] = []
        self._waiting_bytes = 0
        try:
            self._file: IO[bytes] = path.open("ab", buffering=0)
        except OSError as error:
            raise RunFailed(f"cannot write {path}: {error.strerror or error}") from error

    def add(self, item: dict[str, Any], url: str = "") -> None:
        line = self._encoder.encode(item)
        self._lines.append(line)
        self._waiting_bytes += len(line)
        self.taken += 1
        if self._waiting_bytes >= _BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._lines:
            return
        data = memoryview(b"\n".join([*self._lines, b""]))
        self._lines.clear()
        self._waiting_bytes = 0
        begin = os.fstat(self._file.fileno()).st_size
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            # Full disk: keep a whole number of lines in the file.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), begin)
            raise RunFailed(f"cannot write {self._path}: {error.strerror or error}") from error

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def write_exit(folder: Path, content: dict[str, Any]) -> None:
    """Write ``exit.json`` atomically. Raises ``OSError``."""
    temporary = folder / f".{EXIT_FILE}.{os.getpid()}"
    with temporary.open("wb") as file:
        file.write(msgspec.json.encode(content) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / EXIT_FILE)
