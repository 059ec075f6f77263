"""Measurements of the host for heartbeats."""

from __future__ import annotations

import platform
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import psutil

# Number of heartbeats whose mean is reported, so that a short peak does not count as load.
BEATS: Final = 3
# Over a shorter interval psutil may see a single running process and report 100 %.
SHORTEST_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class HostBeat:
    """Load and state of a host at one heartbeat."""

    cpu_percent: float
    memory_free_bytes: int
    running: int
    engine: str
    problem: str


@dataclass(frozen=True, slots=True)
class HostDescription:
    """Constant facts of a host; ``kind`` and ``labels`` are options of its runner."""

    kind: str
    capacity: int
    boot: str
    version: str
    labels: dict[str, str] = field(default_factory=dict)
    cores: int = field(default_factory=lambda: psutil.cpu_count() or 1)
    memory_total_bytes: int = field(default_factory=lambda: int(psutil.virtual_memory().total))
    system: str = field(default_factory=lambda: f"{platform.system()} {platform.release()}"[:200])


class HostVitals:
    """Measures the host at each call."""

    def __init__(self) -> None:
        # Unknown before the first heartbeats; 0 makes the host eligible.
        self._cpu: deque[float] = deque([0.0] * BEATS, maxlen=BEATS)
        self._measured = time.monotonic()
        # psutil compares with its previous call; without this call the first heartbeat reports 0 %.
        psutil.cpu_percent(interval=None)

    def read(self, *, running: int, engine: str, problem: str) -> HostBeat:
        """Measure: CPU percent of all cores, averaged over the last heartbeats, and free memory."""
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
