"""Common clock of all processes of a broker file, independent of the wall clock.

Setting the date must not change TTLs. Time since boot is even and equal in every process; the file
stores its epoch, which the first process after a reboot sets from the wall clock.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_WALL = "wall"


def current_boot() -> str:
    """Return the id of this boot of the machine; "wall" if the system has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return _WALL


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def fresh_epoch(boot: str) -> float:
    """Return the Unix time of this boot by the wall clock."""
    return 0.0 if boot == _WALL else time.time() - _since_boot()


class SharedClock:
    """Clock in seconds, about Unix time, equal in all processes with the same ``state`` row."""

    def __init__(self, boot: str, epoch: float) -> None:
        self._epoch = epoch
        self._read = time.time if boot == _WALL else _since_boot

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> SharedClock:
        """The clock of this file. Call it after the schema has been prepared."""
        boot, epoch = connection.execute("SELECT boot, epoch FROM state").fetchone()
        return cls(boot, epoch)

    def now(self) -> float:
        return self._epoch + self._read()
