"""How far a file inbound has come, so that it survives crashes, and which process may read it."""

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
    """All of a file before ``offset`` is done. The rest says which file that was."""

    # As the rule set names it.
    path: str
    device: int
    inode: int
    offset: int
    # A fingerprint of its first bytes, and of how many.
    head: str
    head_bytes: int


class State:
    """Two files in the state folder: the mark, and a lock that its holder's death opens."""

    def __init__(self, folder: Path, name: str) -> None:
        stem = f"inbound-{quote(name, safe='')}"
        self._folder = folder
        self._mark = folder / f"{stem}.json"
        self._lock = folder / f"{stem}.lock"
        self._held: int | None = None

    def acquire(self) -> bool:
        """Become, or stay, the one who reads; False while another one does. Raises ``OSError``."""
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
        """Let another one read."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def load(self) -> Mark | None:
        """The last mark; None when there is none, or none that can be read."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Mark(**json.loads(self._mark.read_text(encoding="utf-8")))
        return None

    def save(self, mark: Mark) -> None:
        """Either the old mark or the new one is there after a crash. Raises ``OSError``."""
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
