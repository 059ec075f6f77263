"""Which host gets a run, and what speaks against the others (seed S1.54). Plain Python."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

# A host beats every 5 s. Pages call it online for a minute (seed S1.54); a new run is not sent
# to one that has missed three beats.
BEAT_SECONDS: Final = 5.0
ONLINE_SECONDS: Final = 60.0
PLACEABLE_SECONDS: Final = 15.0
ENABLED: Final = "enabled"


class RefusalReason(enum.StrEnum):
    """What speaks against a host."""

    KIND = "kind"
    MODE = "mode"
    SILENT = "silent"
    PROBLEM = "problem"
    LABEL = "label"
    CPU = "cpu"
    MEMORY = "memory"
    FULL = "full"


# These last: a run that was placed before they arose, and not picked up yet, goes elsewhere.
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
    """A host beyond these gets no new run."""

    cpu_percent: float = 90.0
    memory_bytes: int = 150 * 1024**2


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A host as it last described itself. ``taken``: runs that are there, or on their way."""

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
        """Places for further runs."""
        return max(0, self.capacity - self.taken)


@dataclass(frozen=True, slots=True)
class RunRequirements:
    """What a run needs of its host. ``memory_bytes`` 0 is nothing in particular."""

    kind: str
    labels: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HostRefusal:
    """One thing that speaks against a host, with its figures."""

    against: RefusalReason
    figures: Mapping[str, str | float | int] = field(default_factory=dict)


def refusals(
    host: HostFacts, wanted: RunRequirements, limits: PlacementLimits
) -> list[HostRefusal]:
    """All that speaks against a host; nothing means that it may get the run."""
    found = []
    if host.kind != wanted.kind:
        # What else is wrong with it does not matter: it can never be the one.
        return [HostRefusal(RefusalReason.KIND, {"kind": host.kind, "wanted": wanted.kind})]
    if host.mode != ENABLED:
        found.append(HostRefusal(RefusalReason.MODE, {"mode": host.mode}))
    if host.silent_seconds > PLACEABLE_SECONDS:
        # The rest of what is known of it is old.
        return [*found, HostRefusal(RefusalReason.SILENT, {"seconds": int(host.silent_seconds)})]
    if host.problem:
        found.append(HostRefusal(RefusalReason.PROBLEM, {"problem": host.problem}))
    for name, value in sorted(wanted.labels.items()):
        if host.labels.get(name) != value:
            found.append(HostRefusal(RefusalReason.LABEL, {"label": f"{name}={value}"}))
    if host.cpu_percent >= limits.cpu_percent:
        found.append(
            HostRefusal(
                RefusalReason.CPU, {"percent": host.cpu_percent, "limit": limits.cpu_percent}
            )
        )
    needed = max(wanted.memory_bytes, limits.memory_bytes + 1)
    if host.memory_free_bytes < needed:
        found.append(
            HostRefusal(RefusalReason.MEMORY, {"free": host.memory_free_bytes, "needed": needed})
        )
    if not host.free:
        found.append(HostRefusal(RefusalReason.FULL, {"capacity": host.capacity}))
    return found


def choose(
    hosts: Sequence[HostFacts], wanted: RunRequirements, limits: PlacementLimits
) -> HostFacts | None:
    """The least loaded of those that nothing speaks against: free places first, then CPU."""
    eligible: Iterable[HostFacts] = (host for host in hosts if not refusals(host, wanted, limits))
    return min(eligible, key=lambda host: (-host.free, host.cpu_percent, host.name), default=None)
