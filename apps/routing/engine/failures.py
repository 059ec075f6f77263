"""Failure file: JSON Lines log of failed items, with rotation.

Several routers on one host append to the same file. Each call holds a lock file next to it, so
that the lines of one batch are contiguous, a partial write on a full disk can be rolled back, and
no other process writes during rotation: ``failures.jsonl`` becomes ``failures.jsonl.000001``, and
``failures.jsonl.000001.gz`` if compression is enabled. Numbers only increase; the highest is the
newest.

A process that crashes leaves at most one incomplete line, whose write was never acknowledged. The
next writer truncates it, so every line of every file is valid JSON.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from apps.routing.engine.confined import ConfinedPath, PathNotAllowed, open_regular
from yardkit import failpoints

MOST_BYTES: Final = 64 * 1024 * 1024
KEPT: Final = 10
LOCK_SECONDS: Final = 10.0
# Short, because a stopping process has less than a second to close all of its resources.
CLOSE_SECONDS: Final = 0.3
_POLL_SECONDS: Final = 0.02
_BLOCK_BYTES: Final = 64 * 1024
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_encoder: Final = msgspec.json.Encoder()


class FailureRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Failed item: one line of the failure file."""

    task_uuid: str
    # Slug of the project.
    project: str
    inbound: str
    outbound: str
    state: str
    # Code of the reason, such as "retry_limits", and its text.
    reason: str
    detail: str
    # ``task_result`` of the item, as text.
    status: str
    # Time-zone aware.
    at: datetime
    # The item, or the received text if it was not a valid item.
    item: Any


class FailureFileError(Exception):
    """Raised when a batch could not be written; none of its lines is in the file.

    ``code`` is machine-readable. The message omits the path, which may contain the value of a
    secret placeholder.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class FailureFile:
    """Appending writer of one failure file. Thread-safe; several processes may write one file.

    Args:
        path: relative to the first of ``folders``, or absolute and below one of them.
        compress: gzip rotated files.
        most_bytes: rotate the file before it exceeds this size.
        kept: number of rotated files to keep.
        lock_seconds: timeout for the lock that other processes may hold.

    Raises:
        FailureFileError: ``path`` is below none of the folders.
    """

    def __init__(
        self,
        path: str,
        *,
        folders: Sequence[Path],
        compress: bool = False,
        most_bytes: int = MOST_BYTES,
        kept: int = KEPT,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        try:
            self._place = ConfinedPath(path, folders)
        except PathNotAllowed as error:
            raise FailureFileError("outside", f"the failure file: {error}") from None
        self._compress = compress
        self._most_bytes = most_bytes
        self._kept = kept
        self._lock_seconds = lock_seconds
        self._mutex = threading.Lock()
        self._closed = False
        self._tidied = False
        # Last error of compressing or deleting rotated files; "" if there is none.
        self.problem = ""

    def write(self, records: Sequence[FailureRecord]) -> None:
        """Append all records or none, and fsync before returning.

        Raises ``FailureFileError``.
        """
        lines = b"".join(map(_line, records))
        if not lines:
            return
        with self._mutex:
            try:
                with self._place.folder() as folder:
                    with self._lock(folder, self._lock_seconds):
                        set_aside = self._append(folder, lines)
                    if set_aside or not self._tidied:
                        self._tidy(folder)
            except OSError as error:
                raise _why(error) from None

    def close(self) -> None:
        """Reject further batches, and stop waiting for the lock of another process.

        Waits up to ``CLOSE_SECONDS`` for a batch in progress, so a hanging disk does not block.
        """
        self._closed = True
        if self._mutex.acquire(timeout=CLOSE_SECONDS):
            self._mutex.release()

    def _append(self, folder: int, lines: bytes) -> bool:
        """Append after the last complete line; return whether the file was rotated before."""
        set_aside = False
        descriptor = self._open(folder)
        try:
            size = _mend(descriptor)
            if size and size + len(lines) > self._most_bytes:
                os.close(descriptor)
                descriptor = -1
                self._set_aside(folder)
                set_aside = True
                descriptor, size = self._open(folder), 0
            if not size:
                os.fsync(folder)
            try:
                _write(descriptor, lines)
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return set_aside

    def _open(self, folder: int) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        return open_regular(self._place.name, flags, folder)

    def _set_aside(self, folder: int) -> None:
        number = max((number for number, _ in self._older(folder)), default=0) + 1
        aside = f"{self._place.name}.{number:06}"
        os.rename(self._place.name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        failpoints.hit("routing.failures_set_aside")

    def _tidy(self, folder: int) -> None:
        """Compress rotated files, delete the oldest, and remove leftovers of a crash.

        The batch is already on disk, so an error is only recorded in ``problem``; the work is
        retried on a later write.
        """
        try:
            # No wait: the process that holds this lock is doing the same work.
            with self._lock(folder, 0.0, ".pack"):
                older = self._older(folder)
                newest = sorted({number for number, _ in older}, reverse=True)[: self._kept]
                gone = [
                    entry for entry in older if entry[0] not in newest or entry[1].endswith(".tmp")
                ]
                for _, name in gone:
                    os.unlink(name, dir_fd=folder)
                for entry in older if self._compress else ():
                    if entry not in gone and not entry[1].endswith(".gz"):
                        _pack(folder, entry[1])
        except FailureFileError:
            return
        except OSError as error:
            self.problem = str(_why(error))
            return
        self._tidied, self.problem = True, ""

    def _older(self, folder: int) -> list[tuple[int, str]]:
        """Return (number, name) of each rotated, compressed or temporary file, in order."""
        pattern = re.compile(re.escape(self._place.name) + r"\.([0-9]{6,})(?:\.gz(?:\.tmp)?)?")
        matches = (pattern.fullmatch(name) for name in os.listdir(folder))
        return sorted((int(match[1]), match[0]) for match in matches if match)

    @contextlib.contextmanager
    def _lock(self, folder: int, seconds: float, suffix: str = "") -> Iterator[None]:
        name = f".{self._place.name}{suffix}.lock"
        descriptor = open_regular(name, os.O_RDWR | os.O_CREAT, folder)
        try:
            deadline = time.monotonic() + seconds
            while self._closed or not _locked(descriptor):
                if self._closed:
                    raise FailureFileError("closed", "the failure file is closed")
                if time.monotonic() >= deadline:
                    text = f"another process has held the failure file for {seconds:g} seconds"
                    raise FailureFileError("locked", text)
                time.sleep(_POLL_SECONDS)
            yield
        finally:
            # Closing the descriptor releases the lock.
            os.close(descriptor)


def _line(failed: FailureRecord) -> bytes:
    failed = msgspec.structs.replace(failed, at=failed.at.astimezone(UTC))
    try:
        return _encoder.encode(failed) + b"\n"
    except (TypeError, ValueError, OverflowError):
        # Malformed input may hold lone surrogates; the json module escapes them (\ud800).
        plain = {
            name: value if isinstance(value, str) else repr(value)
            for name, value in msgspec.structs.asdict(failed).items()
        }
        return json.dumps(plain | {"at": failed.at.isoformat()}).encode("ascii") + b"\n"


def _mend(descriptor: int) -> int:
    """Truncate an incomplete last line, and return the remaining size in bytes."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, 0) != b"{":
        text = "the failure file cannot be written: what stands at its path holds other things"
        raise FailureFileError("not_a_file", text)
    end = size
    while end:
        begin = max(0, end - _BLOCK_BYTES)
        newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            end = begin + newline + 1
            break
        end = begin
    if end < size:
        os.ftruncate(descriptor, end)
    return end


def _write(descriptor: int, lines: bytes) -> None:
    left = memoryview(lines)
    while left:
        left = left[os.write(descriptor, left) :]


def _pack(folder: int, name: str) -> None:
    """Replace ``name`` with ``name.gz``; one complete copy exists at every moment."""
    packed = f"{name}.gz"
    new = f"{packed}.tmp"
    try:
        descriptor = open_regular(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC, folder)
        with (
            open(open_regular(name, os.O_RDONLY, folder), "rb") as source,
            open(descriptor, "wb") as target,
        ):
            with gzip.GzipFile(filename="", fileobj=target, mode="wb", compresslevel=6) as zipped:
                shutil.copyfileobj(source, zipped, _BLOCK_BYTES)
            target.flush()
            # Keep the modification time: readers select files by their age.
            status = os.fstat(source.fileno())
            os.utime(target.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(target.fileno())
        failpoints.hit("routing.failures_packed")
        os.rename(new, packed, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
        failpoints.hit("routing.failures_renamed")
        os.unlink(name, dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _why(error: OSError) -> FailureFileError:
    if error.errno in _FULL:
        text = "the failure file cannot be written: the disk is full"
        return FailureFileError("disk_full", text)
    if isinstance(error, IsADirectoryError | NotADirectoryError) or error.errno == errno.ELOOP:
        text = "the failure file cannot be written: a link, or no regular file, stands at its path"
        return FailureFileError("not_a_file", text)
    why = (error.strerror or "an error").lower()
    return FailureFileError("unwritable", f"the failure file cannot be written: {why}")
