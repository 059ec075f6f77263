"""Heartbeat of a daemon and its file."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """State of a daemon. ``at`` is Unix time; ``state`` is starting, running, failing,
    stopping or stopped; ``boot`` differs for each start.
    """

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
    """Replace the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(msgspec.json.encode(beat) + b"\n")
    beside.replace(path)


def read_beat(path: Path) -> Beat | None:
    """Return the last heartbeat; None without a readable file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Beat)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
