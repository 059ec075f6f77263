"""What the center keeps in memory of each run: who serves it, and what became of its requests."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from apps.agents.center.liveness import Liveness
from yardkit.clock import Clock
from yardkit.protocol import CenterCounters, DownloaderSettings, Policy

# A run that seems to have no agents is looked up again, but not for each of its batches.
LOAD_AGAIN_SECONDS = 1.0
# After a failed look-up nothing is looked up: each attempt may hold the thread up for seconds.
LOAD_PAUSE_SECONDS = 2.0

DEFAULTS = DownloaderSettings()
FATES = ("received", "dispatched", "skipped", "expired", "refused", "held")


class AllocationsUnavailable(Exception):
    """Who serves a run cannot be read just now; the text says why."""


@dataclass(frozen=True, slots=True)
class OpenAllocation:
    """What the center needs to know of a run's open allocation.

    ``reply_to`` is the queue of the execution it was made for; "" where nobody asks.
    """

    run: int
    policy: str
    agents: tuple[str, ...]
    settings: DownloaderSettings = DEFAULTS
    reply_to: str = ""


@dataclass(slots=True)
class RunEntry:
    """What the center keeps in memory of one run.

    ``boot`` names its counters: one that was forgotten and comes back counts from 0 again, which
    under the old name would look like an old report.
    """

    run: int
    boot: str
    agents: tuple[str, ...] = ()
    chained: bool = False
    settings: DownloaderSettings = DEFAULTS
    why_none: str = ""
    # None until a batch has shown the right one: no token at all must not match it.
    token: str | None = None
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FATES, 0))
    seq: int = 0
    changed: bool = False
    used_at: float = 0.0
    loaded_at: float | None = None
    # The living of ``agents``, as of that generation of the liveness.
    alive: tuple[str, ...] = ()
    alive_set: frozenset[str] = frozenset()
    alive_of: int = -1
    # Whether requests to a host need no politeness, as of those rules (see ``Gate.passes``).
    passes: dict[str, bool] = field(default_factory=dict)
    passes_of: object = None

    def set_allocation(self, allocation: OpenAllocation | None) -> None:
        """Take over who serves the run; None when nobody does any more."""
        self.agents = allocation.agents if allocation else ()
        self.alive_of = -1
        if allocation is not None:
            self.chained = allocation.policy == Policy.CHAINED
            self.settings = allocation.settings
            self.passes_of = None

    def why_nobody(self) -> str:
        """Why ``RunTable.alive`` is empty."""
        if self.agents:
            return "none of the run's agents is alive"
        return self.why_none or "no agents are allocated to the run"


class RunTable:
    """The runs this center has heard of. Thread-safe.

    Args:
        load: asks the database for a run that seems to have no agents; raises
            ``AllocationsUnavailable``. What it said is kept fresh by ``refresh``.
    """

    def __init__(
        self,
        *,
        liveness: Liveness,
        load: Callable[[int], OpenAllocation | None],
        boot: str,
        clock: Clock,
    ) -> None:
        self.liveness = liveness
        self.clock = clock
        self._load_one = load
        self._boot = boot
        self._lock = threading.Lock()
        self._entries: dict[int, RunEntry] = {}
        self._numbers = itertools.count(1)
        self._load_at = 0.0

    def get(self, run: int) -> RunEntry | None:
        """The entry of a run that is known already."""
        return self._entries.get(run)

    def use(self, run: int) -> RunEntry:
        """The entry of a run that asks for something, looked up where it seems to have nobody."""
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
        """The living agents of a run.

        Looked at again only after an agent has come or gone, so that a batch costs the same
        whether its run has two agents or a thousand.
        """
        generation = self.liveness.generation()
        if entry.alive_of != generation:
            entry.alive = tuple(filter(self.liveness.is_alive, entry.agents))
            entry.alive_set = frozenset(entry.alive)
            entry.alive_of = generation
        return entry.alive

    def known(self) -> list[int]:
        """The runs whose agents are in memory."""
        with self._lock:
            return list(self._entries)

    def set_allocation(self, allocation: OpenAllocation) -> None:
        """This center has just allocated a run."""
        with self._lock:
            entry = self._find(allocation.run)
            entry.set_allocation(allocation)
            entry.loaded_at = self.clock.monotonic()

    def refresh(self, allocations: Mapping[int, OpenAllocation], runs: Iterable[int]) -> None:
        """Take over what the database says of ``runs``; one left out has no agents any more.

        Another center may have allocated the run anew, released it or added an agent to it.
        """
        with self._lock:
            for run in runs:
                if run in self._entries:
                    self._entries[run].set_allocation(allocations.get(run))

    def count(self, entry: RunEntry, **changes: int) -> None:
        """Change counters, all at once.

        In one piece, because a report between two changes would never be corrected after the
        last batch: received = dispatched + skipped + expired + refused + held always.
        """
        with self._lock:
            for name, change in changes.items():
                entry.counters[name] += change
            entry.changed = True

    def drain_counters(self) -> list[CenterCounters]:
        """Absolute counters of every run that changed since the last call."""
        with self._lock:
            changed = [entry for entry in self._entries.values() if entry.changed]
            answer = []
            for entry in changed:
                entry.changed = False
                entry.seq += 1
                answer.append(
                    CenterCounters(run=entry.run, boot=entry.boot, seq=entry.seq, **entry.counters)
                )
        return answer

    def report_again(self, counters: Iterable[CenterCounters]) -> None:
        """These did not arrive: the next ``drain_counters`` brings what they stand at then."""
        with self._lock:
            for lost in counters:
                entry = self._entries.get(lost.run)
                if entry is not None and entry.boot == lost.boot:
                    entry.changed = True

    def forget_idle(self, seconds: float) -> None:
        """Drop runs nobody has asked for in so long, and that have nothing held back."""
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
            boot = f"{self._boot}-{next(self._numbers)}"
            entry = RunEntry(run, boot, used_at=self.clock.monotonic())
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
