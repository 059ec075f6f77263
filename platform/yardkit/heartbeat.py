"""The sign of life of a daemon, and the file that carries it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """How a daemon is. ``at`` is Unix time; ``state`` is one of starting, running, failing,
    stopping, stopped; ``boot`` differs for each start of the process."""

    name: str
    boot: str
    host: str
    pid: int
    state: str
    at: float
    steps: int = 0
    failures: int = 0
    error: str = ""


def write_beat(path: Path, beat: Beat) -> None:
    """Replace the file in one go: a reader sees the old beat or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(msgspec.json.encode(beat) + b"\n")
    beside.replace(path)


def read_beat(path: Path) -> Beat | None:
    """The last beat; None when there is no file, or one that holds no beat."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Beat)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
