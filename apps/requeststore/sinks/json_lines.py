"""Records as files of JSON lines: ``<folder>/2026-11-22.<process>.jsonl``.

Each process appends to its own files and locks the current one. The lines of a request are
adjacent and numbered, so that a line torn by a crash is recognised: the next owner of an unlocked
file truncates it after its last complete request.

A request that is leased again is searched for in the files of every process since it was stored.
Its lines are stored once, unless the previous owner writes them past its deadline at the same
moment; owners check the deadline right before writing.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import msgspec

from apps.requeststore.sinks.base import RequestRecords, SinkUnavailable, as_message, moment

MAX_FILE_BYTES: Final = 256 * 1024 * 1024
# Requests remembered from searched files; beyond it the files are searched again.
_MAX_KNOWN: Final = 1_000_000
_FIRST_LINES: Final = re.compile(rb'(?m)^\{"request_id":"([0-9]{1,19})","position":0,')
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")


class _Place(msgspec.Struct):
    request_id: str
    position: int
    of: int


_place: Final = msgspec.json.Decoder(_Place)


class JsonLinesSink:
    """Files of one biz in ``folder``. ``now`` returns Unix ms; its day in UTC names the file."""

    def __init__(
        self,
        folder: Path,
        *,
        process: str,
        now: Callable[[], int],
        max_file_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        self._folder = folder
        self._process = _UNSAFE.sub("_", process)
        self._now = now
        self._max_file_bytes = max_file_bytes
        self._file: int | None = None
        self._day: date | None = None
        self._size = 0
        # By file: the searched size, and the requests found in it.
        self._known: dict[Path, tuple[int, set[int]]] = {}

    def write(self, batch: Sequence[RequestRecords]) -> dict[int, str]:
        try:
            there = self._find([one for one in batch if one.again and one.rows])
            lines = [
                as_message(one, position) + b"\n"
                for one in batch
                if one.request_id not in there
                for position in range(len(one.rows))
            ]
            if lines:
                self._append(b"".join(lines))
        except OSError as error:
            self.close()
            raise SinkUnavailable(f"records: {error.strerror or error}") from error
        return {}

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    # --- writes ---------------------------------------------------------------------------------

    def _append(self, data: bytes) -> None:
        today = moment(self._now()).date()
        if self._file is None or self._day != today or self._size >= self._max_file_bytes:
            self.close()
            self._file, self._size = self._open(today)
            self._day = today
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:] if written else data)
            os.fdatasync(self._file)
        except OSError:
            # A partial request must not stay: the whole batch is truncated.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _open(self, today: date) -> tuple[int, int]:
        """Open this process's first file of the day that is free and has room; return it with its
        size.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        number = 0
        while True:
            ending = f".{number}.jsonl" if number else ".jsonl"
            path = self._folder / f"{today}.{self._process}{ending}"
            new = not path.exists()
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            if _lock(file):
                size = _mend(file)
                if size < self._max_file_bytes:
                    if new:
                        _sync_folder(self._folder)
                    return file, size
            os.close(file)
            number += 1

    # --- existing lines -------------------------------------------------------------------------

    def _find(self, wanted: Sequence[RequestRecords]) -> set[int]:
        """Return which of these requests have lines in any file."""
        if not wanted:
            return set()
        missing = {one.request_id for one in wanted}
        there: set[int] = set()
        for path in self._files(moment(min(one.ts for one in wanted)).date()):
            found = self._ids(path) & missing
            there |= found
            missing -= found
            if not missing:
                break
        return there

    def _files(self, since: date) -> Iterator[Path]:
        # One more day at both ends: clocks differ.
        day = moment(self._now()).date() + timedelta(days=1)
        while day >= since - timedelta(days=1):
            yield from sorted(self._folder.glob(f"{day}.*.jsonl"))
            day -= timedelta(days=1)

    def _ids(self, path: Path) -> set[int]:
        looked, ids = self._known.get(path, (0, set()))
        with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if size < looked:
                looked, ids = 0, set()
            if size > looked:
                if _lock(file.fileno()):
                    # Unlocked: its process has died or writes another file.
                    size = _mend(file.fileno())
                if size > looked:
                    with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as content:
                        end = _whole(content)
                        ids |= {int(one[1]) for one in _FIRST_LINES.finditer(content, looked, end)}
                    looked = end
        if sum(len(each) for _end, each in self._known.values()) > _MAX_KNOWN:
            self._known.clear()
        self._known[path] = (looked, ids)
        return ids


def _lock(file: int) -> bool:
    """Lock a file until it is closed; return whether that succeeded."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _mend(file: int) -> int:
    """Truncate a torn file and return its size. The caller holds the lock."""
    size = os.fstat(file).st_size
    if size == 0:
        return 0
    with mmap.mmap(file, size, access=mmap.ACCESS_READ) as content:
        end = _whole(content)
    if end < size:
        os.ftruncate(file, end)
        os.fdatasync(file)
    return end


def _whole(content: mmap.mmap) -> int:
    """Return the size of the complete requests."""
    end = content.rfind(b"\n") + 1
    while end:
        start = content.rfind(b"\n", 0, end - 1) + 1
        try:
            place = _place.decode(content[start:end])
        except msgspec.DecodeError:
            # Foreign or damaged line: no part of a request.
            return end
        if place.position + 1 == place.of:
            return end
        for _line in range(place.position):
            start = content.rfind(b"\n", 0, start - 1) + 1
        end = start
    return 0


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
