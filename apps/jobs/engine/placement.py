"""Choice of a host for a run, and the reasons against other hosts."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

# Hosts send a heartbeat every 5 s. Pages show a host as online for a minute (seed S1.54), but a
# host that has missed three heartbeats gets no new run.
BEAT_SECONDS: Final = 5.0
ONLINE_SECONDS: Final = 60.0
PLACEABLE_SECONDS: Final = 15.0
ENABLED: Final = "enabled"


class RefusalReason(enum.StrEnum):
    """Reason why a host may not get a run."""

    KIND = "kind"
    MODE = "mode"
    SILENT = "silent"
    PROBLEM = "problem"
    LABEL = "label"
    CPU = "cpu"
    MEMORY = "memory"
    FULL = "full"


# Lasting reasons: a run that is assigned to the host but not claimed yet is reassigned.
LASTING: Final = frozenset(
    {
        RefusalReason.KIND,
        RefusalReason.MODE,
        RefusalReason.SILENT,
        RefusalReason.PROBLEM,
        RefusalReason.LABEL,
    }
)


@dataclass(frozen=True, slots=True)
class PlacementLimits:
    """Load limits beyond which a host gets no new run."""

    cpu_percent: float = 90.0
    memory_bytes: int = 150 * 1024**2


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Host as last reported by its runner. ``taken``: number of running and assigned runs."""

    name: str
    kind: str
    mode: str
    silent_seconds: float
    labels: Mapping[str, str]
    cpu_percent: float
    memory_free_bytes: int
    capacity: int
    taken: int
    problem: str = ""

    @property
    def free(self) -> int:
        """Number of further runs that the host has capacity for."""
        return max(0, self.capacity - self.taken)


@dataclass(frozen=True, slots=True)
class RunRequirements:
    """Requirements of a run on its host. ``memory_bytes`` 0: no requirement."""

    kind: str
    labels: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HostRefusal:
    """Reason against a host, with its figures."""

    against: RefusalReason
    figures: Mapping[str, str | float | int] = field(default_factory=dict)


def refusals(
    host: HostFacts, wanted: RunRequirements, limits: PlacementLimits
) -> list[HostRefusal]:
    """Return all reasons against a host; an empty list means that the host may get the run."""
    reasons = []
    if host.kind != wanted.kind:
        # Further reasons are irrelevant: this host can never run it.
        return [HostRefusal(RefusalReason.KIND, {"kind": host.kind, "wanted": wanted.kind})]
    if host.mode != ENABLED:
        reasons.append(HostRefusal(RefusalReason.MODE, {"mode": host.mode}))
    if host.silent_seconds > PLACEABLE_SECONDS:
        # All other facts of a silent host are outdated.
        return [*reasons, HostRefusal(RefusalReason.SILENT, {"seconds": int(host.silent_seconds)})]
    if host.problem:
        reasons.append(HostRefusal(RefusalReason.PROBLEM, {"problem": host.problem}))
    for name, value in sorted(wanted.labels.items()):
        if host.labels.get(name) != value:
            reasons.append(HostRefusal(RefusalReason.LABEL, {"label": f"{name}={value}"}))
    if host.cpu_percent >= limits.cpu_percent:
        reasons.append(
            HostRefusal(
                RefusalReason.CPU, {"percent": host.cpu_percent, "limit": limits.cpu_percent}
            )
        )
    needed = max(wanted.memory_bytes, limits.memory_bytes + 1)
    if host.memory_free_bytes < needed:
        reasons.append(
            HostRefusal(RefusalReason.MEMORY, {"free": host.memory_free_bytes, "needed": needed})
        )
    if not host.free:
        reasons.append(HostRefusal(RefusalReason.FULL, {"capacity": host.capacity}))
    return reasons


def choose(
    hosts: Sequence[HostFacts], wanted: RunRequirements, limits: PlacementLimits
) -> HostFacts | None:
    """Return the least loaded eligible host: most free places first, then lowest CPU load."""
    eligible: Iterable[HostFacts] = (host for host in hosts if not refusals(host, wanted, limits))
    return min(eligible, key=lambda host: (-host.free, host.cpu_percent, host.name), default=None)
