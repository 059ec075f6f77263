"""WARC files of kept pages on the agent's disk, until they are in the object store.

    <folder>/run-7/token                  proves the agent, see ``PagePolicy``
    <folder>/run-7/<name>.open            being written
    <folder>/run-7/<name>.warc.gz         complete, to be uploaded

What was written survives a kill of the process; the last record may be cut, and is cut off then.
Everything here blocks, and is called by one thread at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from apps.agents.downloader.kept.warc import PageDownload, file_header, page_members, read_index
from yardkit import failpoints

logger = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 8 * 1024 * 1024
# A larger page would make an object that no address allows.
MAX_PAGE_BYTES: Final = 32 * 1024 * 1024
_RUN: Final = re.compile(r"run-([1-9][0-9]{0,17})")
_OPEN: Final = ".open"
_DONE: Final = ".warc.gz"
_PROOF: Final = "token"
_LOCK: Final = "lock"
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700


class Reason:
    """Why a page is not kept; the texts are shown on the run's page."""

    FULL: Final = "no space on the agent"
    DISK: Final = "the agent's disk"
    LARGE: Final = "too large"
    BUSY: Final = "the agent could not write fast enough"
    REFUSED: Final = "refused by the object store"
    OLD: Final = "not uploaded in time"


@dataclass(slots=True)
class WarcFile:
    """A complete file. ``pages`` is None until it has been read."""

    run: int
    path: Path
    token: str
    size: int
    modified_at: float
    pages: int | None = None

    @property
    def name(self) -> str:
        """Return the name without its suffix, unique among all agents."""
        return self.path.name.removesuffix(_DONE)


@dataclass(slots=True)
class _OpenFile:
    path: Path
    file: BinaryIO
    token: str
    begun_at: float
    size: int = 0
    pages: int = 0


@dataclass(slots=True)
class Written:
    """What became of some pages: reasons of those that were not written, with their number."""

    not_kept: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str, count: int = 1) -> None:
        """Count pages that are not kept."""
        self.not_kept[reason] = self.not_kept.get(reason, 0) + count


class PageSpool:
    """Files of all runs of one agent.

    Args:
        folder: of this process alone; made when the first page is written.
        max_bytes: of all files; beyond it pages are not kept.
    """

    def __init__(self, folder: Path, agent: str, max_bytes: int) -> None:
        self._folder = folder
        self._agent = agent
        self._max_bytes = max_bytes
        self._open: dict[int, _OpenFile] = {}
        self._lock: int | None = None
        # Of complete files; those being written count by themselves.
        self.done_bytes = 0

    # --- write ----------------------------------------------------------------------------------

    def write(self, run: int, token: str, pages: list[PageDownload]) -> Written:
        """Append pages of a run. Never raises for the disk: what cannot be written is counted."""
        written = Written()
        for number, page in enumerate(pages):
            members = page_members(page)
            try:
                if not self._append(run, token, members, page.at):
                    written.add(Reason.FULL)
            except OSError as error:
                logger.warning("run %d: kept pages cannot be written: %s", run, error)
                written.add(Reason.DISK, len(pages) - number)
                break
        return written

    def _append(self, run: int, token: str, members: list[bytes], at: float) -> bool:
        size = sum(map(len, members))
        used = self.done_bytes + sum(one.size for one in self._open.values())
        if used + size > self._max_bytes:
            return False
        target = self._open.get(run) or self._begin(run, token, at)
        try:
            for member in members:
                _write_all(target.file, member)
            failpoints.hit("agent.page_written")
        except OSError:
            # Nothing is left of a page that was written in part.
            with contextlib.suppress(OSError):
                target.file.truncate(target.size)
                target.file.seek(target.size)
            raise
        target.size += size
        target.pages += 1
        return True

    def _begin(self, run: int, token: str, at: float) -> _OpenFile:
        self._take_folder()
        folder = self._folder / f"run-{run}"
        folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        _write_token(folder / _PROOF, token)
        path = folder / f"{uuid.uuid4().hex}{_OPEN}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        # Unbuffered: what was written survives the process.
        file = os.fdopen(os.open(path, flags, _FILE_MODE), "wb", buffering=0)
        header = file_header(self._agent, run, at)
        _write_all(file, header)
        made = self._open[run] = _OpenFile(path, file, token, at, size=len(header))
        return made

    def _take_folder(self) -> None:
        """Lock the folder, so that no other agent takes over its files."""
        if self._lock is None:
            self._folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            self._lock = _locked(self._folder)

    def due(self, now: float, seconds: float) -> list[int]:
        """Return the runs whose file is full, or ``seconds`` old."""
        return [
            run
            for run, one in self._open.items()
            if one.size >= MAX_FILE_BYTES or now >= one.begun_at + seconds
        ]

    @property
    def open_runs(self) -> list[int]:
        """Return the runs with a file that is being written."""
        return list(self._open)

    def finish(self, run: int) -> WarcFile | None:
        """Complete the file of a run; None without one. Raises ``OSError``."""
        one = self._open.pop(run, None)
        if one is None:
            return None
        one.file.close()
        if not one.pages:
            one.path.unlink()
            return None
        done = one.path.with_name(one.path.name.removesuffix(_OPEN) + _DONE)
        one.path.rename(done)
        self.done_bytes += one.size
        return WarcFile(run, done, one.token, one.size, one.begun_at, one.pages)

    # --- upload ---------------------------------------------------------------------------------

    def index(self, file: WarcFile) -> list[dict[str, Any]]:
        """Return the rows of a file. Raises ``OSError``."""
        with file.path.open("rb") as opened:
            rows = list(read_index(opened))
        for row in rows:
            del row["end"]
        file.pages = len(rows)
        return rows

    def remove(self, file: WarcFile) -> None:
        """Delete a file that is stored, or given up. Raises ``OSError``."""
        with contextlib.suppress(FileNotFoundError):
            file.path.unlink()
        self.done_bytes -= file.size
        if file.run not in self._open:
            _remove_if_empty(file.path.parent)

    # --- after a restart ------------------------------------------------------------------------

    def leftovers(self) -> list[WarcFile]:
        """Return the files of earlier processes, of this agent and of those that are gone.

        Raises ``OSError``.
        """
        found: list[WarcFile] = []
        if self._folder.is_dir():
            self._take_folder()
            found += self._files_in(self._folder)
        beside = self._folder.parent
        others = sorted(beside.iterdir()) if beside.is_dir() else []
        for other in others:
            if other == self._folder or not other.is_dir():
                continue
            lock = _locked(other)
            if lock is None:
                continue
            # Kept until the process ends: only one may take them over.
            files = self._files_in(other)
            found += files
            if not files:
                os.close(lock)
                with contextlib.suppress(OSError):
                    (other / _LOCK).unlink()
                    other.rmdir()
        self.done_bytes += sum(file.size for file in found)
        if found:
            logger.info("%d files of kept pages of an earlier process are uploaded", len(found))
        return found

    def _files_in(self, folder: Path) -> list[WarcFile]:
        found: list[WarcFile] = []
        for run_folder in sorted(folder.iterdir()):
            match = _RUN.fullmatch(run_folder.name)
            if match is None:
                continue
            token = ""
            with contextlib.suppress(OSError, UnicodeDecodeError):
                token = (run_folder / _PROOF).read_text("ascii")
            for each in sorted(run_folder.iterdir()):
                path = _completed(each) if each.suffix == _OPEN else each
                if path is not None and path.name.endswith(_DONE):
                    status = path.stat()
                    found.append(
                        WarcFile(int(match[1]), path, token, status.st_size, status.st_mtime)
                    )
            _remove_if_empty(run_folder)
        return found

    def close(self) -> None:
        """Complete what is open; the next process uploads it."""
        for run in list(self._open):
            with contextlib.suppress(OSError):
                self.finish(run)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _completed(path: Path) -> Path | None:
    """Cut the file of a killed process behind its last whole page; None if it has none."""
    with path.open("r+b") as file:
        end = max((row["end"] for row in read_index(file)), default=0)
        if end:
            file.truncate(end)
    if not end:
        path.unlink()
        return None
    return path.rename(path.with_name(path.name.removesuffix(_OPEN) + _DONE))


def _write_all(file: BinaryIO, content: bytes) -> None:
    # Without a buffer a write may take a part only, as on a disk that is nearly full.
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def _write_token(path: Path, token: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, _FILE_MODE), "w", encoding="ascii") as file:
        file.write(token)


def _remove_if_empty(folder: Path) -> None:
    """Remove the folder of a run that holds nothing but its token."""
    with contextlib.suppress(OSError):
        if _only(folder.iterdir()):
            (folder / _PROOF).unlink(missing_ok=True)
            folder.rmdir()


def _only(paths: Iterator[Path]) -> bool:
    return all(path.name == _PROOF for path in paths)


def _locked(folder: Path) -> int | None:
    """Return a descriptor that holds the lock of a folder, None if another process has it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(folder / _LOCK, flags, _FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
