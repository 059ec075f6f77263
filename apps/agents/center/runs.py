"""The center's state of each run: its agents and its counters."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from apps.agents.center.liveness import Liveness
from yardkit.clock import Clock
from yardkit.protocol import CenterCounters, DownloaderSettings, Policy

# Interval of reading the allocation of a run that seems to have no agents.
LOAD_AGAIN_SECONDS = 1.0
# Pause after a failed read: each attempt may block the thread for seconds.
LOAD_PAUSE_SECONDS = 2.0

DEFAULTS = DownloaderSettings()
FATES = ("received", "dispatched", "skipped", "expired", "refused", "held")


class AllocationsUnavailable(Exception):
    """The allocations cannot be read at the moment; the text says why."""


@dataclass(frozen=True, slots=True)
class OpenAllocation:
    """Fields of a run's open allocation that the center needs.

    ``reply_to``: answer queue of the execution it was made for; "" for none.
    """

    run: int
    policy: str
    agents: tuple[str, ...]
    settings: DownloaderSettings = DEFAULTS
    reply_to: str = ""
    project: int = 0


@dataclass(slots=True)
class RunEntry:
    """The center's state of one run.

    ``incarnation`` identifies its counters: a run that was forgotten and comes back counts
    from 0 again, which under the old name would look like an old report.
    """

    run: int
    incarnation: str
    agents: tuple[str, ...] = ()
    chained: bool = False
    settings: DownloaderSettings = DEFAULTS
    why_none: str = ""
    project: int = 0
    # None until the first valid one: an empty token must not match.
    token: str | None = None
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FATES, 0))
    seq: int = 0
    changed: bool = False
    used_at: float = 0.0
    loaded_at: float | None = None
    # The living ones of ``agents``, as of that generation of the liveness.
    alive: tuple[str, ...] = ()
    alive_set: frozenset[str] = frozenset()
    alive_of: int = -1
    # Whether requests to a host have no limits, as of those rules (see
    # ``PolitenessGate.passes``).
    passes: dict[str, bool] = field(default_factory=dict)
    passes_of: object = None

    def set_allocation(self, allocation: OpenAllocation | None) -> None:
        """Replace the allocation; None when the run has no agents any more."""
        self.agents = allocation.agents if allocation else ()
        self.alive_of = -1
        if allocation is not None:
            self.chained = allocation.policy == Policy.CHAINED
            self.settings = allocation.settings
            self.project = allocation.project
            self.passes_of = None

    def why_nobody(self) -> str:
        """Return why no living agent can serve this run."""
        if self.agents:
            return "none of the run's agents is alive"
        return self.why_none or "no agents are allocated to the run"


class RunTable:
    """The runs known to this center. Thread-safe.

    Args:
        load: reads the allocation of a run without known agents from the database; raises
            ``AllocationsUnavailable``. ``refresh`` keeps it up to date.
    """

    def __init__(
        self,
        *,
        liveness: Liveness,
        load: Callable[[int], OpenAllocation | None],
        incarnation: str,
        clock: Clock,
    ) -> None:
        self.liveness = liveness
        self.clock = clock
        self._load_one = load
        self._incarnation = incarnation
        self._lock = threading.Lock()
        self._entries: dict[int, RunEntry] = {}
        self._numbers = itertools.count(1)
        self._load_at = 0.0

    def get(self, run: int) -> RunEntry | None:
        """Return the entry of a run that is known already."""
        return self._entries.get(run)

    def use(self, run: int) -> RunEntry:
        """Return the entry of a run; read its allocation if it has no known agents."""
        now = self.clock.monotonic()
        with self._lock:
            entry = self._find(run)
            # From here on it cannot be forgotten while it is in use.
            entry.used_at = now
        old = entry.loaded_at is None or now - entry.loaded_at >= LOAD_AGAIN_SECONDS
        if not entry.agents and old and now >= self._load_at:
            self._load(entry)
        return entry

    def alive(self, entry: RunEntry) -> tuple[str, ...]:
        """Return the living agents of a run.

        Recomputed only after an agent has come to life or died, so a batch costs the same for two
        agents and for a thousand.
        """
        generation = self.liveness.generation()
        if entry.alive_of != generation:
            entry.alive = tuple(filter(self.liveness.is_alive, entry.agents))
            entry.alive_set = frozenset(entry.alive)
            entry.alive_of = generation
        return entry.alive

    def known(self) -> list[int]:
        """Return the runs in memory."""
        with self._lock:
            return list(self._entries)

    def set_allocation(self, allocation: OpenAllocation) -> None:
        """Store an allocation that this center has just made."""
        with self._lock:
            entry = self._find(allocation.run)
            entry.set_allocation(allocation)
            entry.loaded_at = self.clock.monotonic()

    def refresh(self, allocations: Mapping[int, OpenAllocation], runs: Iterable[int]) -> None:
        """Replace the allocations of ``runs``; a run that is missing has no agents any more.

        Another center may have allocated or released a run, or added an agent.
        """
        with self._lock:
            for run in runs:
                if run in self._entries:
                    self._entries[run].set_allocation(allocations.get(run))

    def count(self, entry: RunEntry, **changes: int) -> None:
        """Change counters atomically.

        A report between two changes would not be corrected after the last batch:
        received = dispatched + skipped + expired + refused + held at any time.
        """
        with self._lock:
            for name, change in changes.items():
                entry.counters[name] += change
            entry.changed = True

    def drain_counters(self) -> list[CenterCounters]:
        """Return absolute counters of every run that changed since the last call."""
        with self._lock:
            changed = [entry for entry in self._entries.values() if entry.changed]
            answer = []
            for entry in changed:
                entry.changed = False
                entry.seq += 1
                answer.append(
                    CenterCounters(
                        run=entry.run, boot=entry.incarnation, seq=entry.seq, **entry.counters
                    )
                )
        return answer

    def report_again(self, counters: Iterable[CenterCounters]) -> None:
        """Report the counters of these runs again: the last report was lost."""
        with self._lock:
            for lost in counters:
                entry = self._entries.get(lost.run)
                if entry is not None and entry.incarnation == lost.boot:
                    entry.changed = True

    def forget_idle(self, seconds: float) -> None:
        """Forget runs without requests for ``seconds`` and without held requests."""
        limit = self.clock.monotonic() - seconds
        with self._lock:
            self._entries = {
                run: entry
                for run, entry in self._entries.items()
                if entry.used_at > limit or entry.changed or entry.counters["held"]
            }

    def _find(self, run: int) -> RunEntry:
        entry = self._entries.get(run)
        if entry is None:
            incarnation = f"{self._incarnation}-{next(self._numbers)}"
            entry = RunEntry(run, incarnation, used_at=self.clock.monotonic())
            self._entries[run] = entry
        return entry

    def _load(self, entry: RunEntry) -> None:
        try:
            allocation = self._load_one(entry.run)
        except AllocationsUnavailable as error:
            entry.why_none = f"the center cannot look up the run's agents: {error}"
            self._load_at = self.clock.monotonic() + LOAD_PAUSE_SECONDS
            return
        with self._lock:
            entry.set_allocation(allocation)
            entry.why_none = ""
            entry.loaded_at = self.clock.monotonic()
