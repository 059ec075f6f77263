"""What a runner measures of its host for its heartbeats (seed S1.52)."""

from __future__ import annotations

import platform
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import psutil

# Of so many beats the mean is taken: one peak is no load.
BEATS: Final = 3
# In less time psutil sees one process that happens to run, and calls it all.
SHORTEST_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class HostBeat:
    """How the host is now."""

    cpu_percent: float
    memory_free_bytes: int
    running: int
    engine: str
    problem: str


@dataclass(frozen=True, slots=True)
class HostDescription:
    """What the host is; ``kind`` and ``labels`` as its runner was started with."""

    kind: str
    capacity: int
    boot: str
    version: str
    labels: dict[str, str] = field(default_factory=dict)
    cores: int = field(default_factory=lambda: psutil.cpu_count() or 1)
    memory_total_bytes: int = field(default_factory=lambda: int(psutil.virtual_memory().total))
    system: str = field(default_factory=lambda: f"{platform.system()} {platform.release()}"[:200])


class HostVitals:
    """Measures anew at each call."""

    def __init__(self) -> None:
        # Before the first beats: nothing is known of its load, so nothing is said against it.
        self._cpu: deque[float] = deque([0.0] * BEATS, maxlen=BEATS)
        self._measured = time.monotonic()
        # psutil compares with the call before: without this one the first beat says 0 %.
        psutil.cpu_percent(interval=None)

    def read(self, *, running: int, engine: str, problem: str) -> HostBeat:
        """Percent of all cores over the last beats, and the rest as it is."""
        if time.monotonic() - self._measured >= SHORTEST_SECONDS:
            self._measured = time.monotonic()
            self._cpu.append(psutil.cpu_percent(interval=None))
        return HostBeat(
            cpu_percent=sum(self._cpu) / len(self._cpu),
            memory_free_bytes=int(psutil.virtual_memory().available),
            running=running,
            engine=engine[:100],
            problem=problem[:1000],
        )
