"""Folders of code and data, and keys generated on first use."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from yardkit.env import EnvError

ROOT = Path(__file__).resolve().parents[3]


def data_folder(path: Path) -> Path:
    """Create the data folder, readable by its owner only, and verify that it is writable."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = path / f".write-probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise EnvError(
            f"CRAWLYARD_DATA: cannot write to the data folder {path}: {error.strerror}; "
            "name a folder this user may write to"
        ) from error
    return path


def key_from_file(path: Path, make: str) -> str:
    """Read the key at ``path``; the first process writes ``make`` there (mode 0600)."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read_when_written(path)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(make)
        file.flush()
        os.fsync(file.fileno())
    return make


def _read_when_written(path: Path) -> str:
    for _ in range(200):
        value = path.read_text(encoding="ascii").strip()
        if value:
            return value
        # Another process has just created the file and is about to fill it.
        time.sleep(0.01)
    raise EnvError(f"{path} is empty; delete it, and a new key is made (old secrets are then lost)")


def new_secret_key() -> str:
    """Return a new SECRET_KEY."""
    return secrets.token_urlsafe(50)


def check_secret_key(key: str, *, debug: bool) -> None:
    """Refuse a guessable key: it signs sessions and tokens of runs."""
    guessable = len(key) < 32 or len(set(key)) < 12 or key.startswith("django-insecure-")
    if guessable and not debug:
        raise EnvError(
            "SECRET_KEY: can be guessed; use 50 random characters, or leave it out and one is made"
        )
