"""One clock for all processes that share a broker file, deaf to changes of the wall clock.

A time to live must neither end early nor last longer because somebody set the date. The time
since boot runs evenly and is the same in every process; the file remembers for which boot its
epoch holds, and the first process after a reboot sets the epoch anew from the wall clock.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_WALL = "wall"


def current_boot() -> str:
    """What tells this boot from others; "wall" where the system does not say."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return _WALL


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def fresh_epoch(boot: str) -> float:
    """The Unix time at which this boot began, as far as the wall clock knows now."""
    return 0.0 if boot == _WALL else time.time() - _since_boot()


class SharedClock:
    """Seconds, about Unix time, equal in all processes that read the same ``state`` row."""

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
