"""Allocations of an agent as files, which survive a restart.

One file a run, ``run-<id>.alloc``: a line with the version of its format and a checksum, then the
``AllocateDownloader`` as received. Everything here blocks, and is called by one thread at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from yardkit import failpoints
from yardkit.protocol import AllocateDownloader, ProtocolError, decode, encode

logger = logging.getLogger(__name__)

VERSION: Final = 1
MAX_BYTES: Final = 8 * 1024 * 1024
_NAME: Final = re.compile(r"run-(-?[0-9]{1,20})\.alloc")
_TEMPORARY: Final = re.compile(r"\.run-.*\.tmp")
_BAD: Final = re.compile(r"run-.*\.alloc\.bad(\.[0-9]+)?")
_HEADER: Final = re.compile(rb"crawlyard-allocation ([0-9]{1,9}) ([0-9a-f]{64})\n")
# Readable by the owner only: it contains the cookies of the run.
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700


class BadAllocation(ValueError):
    """A file without a valid allocation; the text says why."""


class AllocationStore:
    """Files in ``folder``, which is made when the first one is written.

    An invalid file is renamed to ``<name>.bad`` and stays for the operator; ``bad_files`` lists
    them, with the reason if this process found it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bad: dict[Path, str] = {}

    def load(self) -> list[AllocateDownloader]:
        """Return all allocations; set invalid files aside. Raises ``OSError``."""
        found: list[AllocateDownloader] = []
        for path in self._paths():
            if _TEMPORARY.fullmatch(path.name):
                # Left by a process that was killed while writing.
                with contextlib.suppress(OSError):
                    path.unlink()
            elif _BAD.fullmatch(path.name):
                self._bad[path] = "it was damaged"
            elif match := _NAME.fullmatch(path.name):
                try:
                    found.append(_read(path, int(match[1])))
                except (OSError, BadAllocation) as error:
                    self._set_aside(path, _line(error))
        return found

    def _paths(self) -> Iterator[Path]:
        try:
            yield from sorted(self._folder.iterdir())
        except FileNotFoundError:
            return

    def save(self, allocation: AllocateDownloader) -> None:
        """Write the file of a run atomically. Raises ``OSError``."""
        path = self._path(allocation.run)
        temporary = self._folder / f".{path.name}.tmp"
        self._folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(temporary, flags, _FILE_MODE), "wb") as file:
                file.write(to_bytes(allocation))
                file.flush()
                failpoints.hit("agent.allocation_written")
                os.fsync(file.fileno())
            failpoints.hit("agent.allocation_synced")
            temporary.rename(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        failpoints.hit("agent.allocation_renamed")
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self, run: int) -> None:
        """Delete the file of a run, if there is one. Raises ``OSError``."""
        # Not synced: one that reappears after a power cut is released for being idle.
        with contextlib.suppress(FileNotFoundError):
            self._path(run).unlink()

    def set_aside(self, run: int, reason: str) -> None:
        """Rename the file of a run to ``.bad``, with a reason."""
        self._set_aside(self._path(run), reason)

    @property
    def has_bad_files(self) -> bool:
        """Whether ``bad_files`` found any at the last call."""
        return bool(self._bad)

    def bad_files(self) -> dict[str, str]:
        """Return name and reason of each set-aside file that still exists."""
        self._bad = {path: reason for path, reason in self._bad.items() if os.path.lexists(path)}
        return {path.name: reason for path, reason in self._bad.items()}

    def _set_aside(self, path: Path, reason: str) -> None:
        bad = path.with_name(f"{path.name}.bad")
        number = 0
        while os.path.lexists(bad):
            number += 1
            bad = path.with_name(f"{path.name}.bad.{number}")
        try:
            path.rename(bad)
        except OSError as error:
            reason = f"{reason}; and it cannot be set aside: {_line(error)}"
            bad = path
        logger.error("allocation file %s: %s", bad, reason)
        self._bad[bad] = reason

    def _path(self, run: int) -> Path:
        return self._folder / f"run-{run}.alloc"


def to_bytes(allocation: AllocateDownloader) -> bytes:
    """Return the content of a file."""
    body = encode(allocation)
    return b"crawlyard-allocation %d %s\n%s" % (VERSION, _checksum(VERSION, body).encode(), body)


def from_bytes(content: bytes) -> AllocateDownloader:
    """Parse the content of a file. Raises ``BadAllocation``."""
    if not content:
        raise BadAllocation("it is empty")
    header = _HEADER.match(content)
    if header is None:
        raise BadAllocation("it does not begin like an allocation file")
    version, body = int(header[1]), content[header.end() :]
    if version != VERSION:
        raise BadAllocation(f"it is of version {version}, this agent reads {VERSION}")
    if _checksum(version, body) != header[2].decode():
        raise BadAllocation("its checksum is wrong")
    try:
        message = decode(body)
    except ProtocolError as error:
        raise BadAllocation(str(error)) from error
    if not isinstance(message, AllocateDownloader):
        raise BadAllocation(f"it holds {type(message).__name__}")
    return message


def _read(path: Path, run: int) -> AllocateDownloader:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise BadAllocation("it is no file")
    if status.st_size > MAX_BYTES:
        raise BadAllocation(f"it is larger than {MAX_BYTES} bytes")
    message = from_bytes(path.read_bytes())
    if message.run != run:
        raise BadAllocation(f"it is of run {message.run}")
    return message


def _checksum(version: int, body: bytes) -> str:
    return hashlib.sha256(b"%d\n%s" % (version, body)).hexdigest()


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
