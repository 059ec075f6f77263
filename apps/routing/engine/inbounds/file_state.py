"""Persistent read offset of a file inbound, and the lock that allows one reader at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Mark:
    """Read offset, before which all lines are done, and the identity of the file."""

    # Path as configured in the rule set.
    path: str
    device: int
    inode: int
    offset: int
    # SHA-256 of the first ``head_bytes`` bytes.
    head: str
    head_bytes: int


class InboundFileState:
    """Mark and lock file of an inbound; the lock is released when its process exits."""

    def __init__(self, folder: Path, name: str) -> None:
        stem = f"inbound-{quote(name, safe='')}"
        self._folder = folder
        self._mark = folder / f"{stem}.json"
        self._lock = folder / f"{stem}.lock"
        self._held: int | None = None

    def acquire(self) -> bool:
        """Acquire the lock without waiting; return False while another process holds it.

        Returns True if this object already holds the lock. Raises ``OSError``.
        """
        if self._held is not None:
            return True
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._held = descriptor
        return True

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def load(self) -> Mark | None:
        """Return the last mark; None if it is missing or unreadable."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Mark(**json.loads(self._mark.read_text(encoding="utf-8")))
        return None

    def save(self, mark: Mark) -> None:
        """Replace the mark atomically and durably. Raises ``OSError``."""
        fresh = self._mark.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(asdict(mark), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._mark)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
