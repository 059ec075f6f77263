"""Monitor daemon: the leader samples gauges, evaluates rules and opens incidents.

Other instances stand by. The leader keeps no state in memory that a successor would miss: rules
come from their configuration, conditions from stored samples and sources, sent notifications from
the incidents. After a crash another instance takes over within 15 s.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from apps.alerts.engine.rule_parser import rulebook
from apps.alerts.engine.rules import Rulebook, scoped_rules
from apps.alerts.queries.rules import KIND
from apps.alerts.queries.samples import SAMPLED
from apps.alerts.services.condition_starts import prune_starts
from apps.alerts.services.evaluation import Evaluator, Rules
from apps.alerts.services.event_intake import EventReader, prune_seen
from apps.alerts.services.retention import prune_incidents
from apps.alerts.services.source_reader import FailureLog, SourceReader
from apps.configcenter.services import PLATFORM, ActiveVersion, ConfigWatcher
from apps.queuestats.services import record_gauges
from apps.runtime.daemon import Identity
from apps.runtime.errors import DATABASE_AWAY, LeaseLost, NoFreeNumber
from apps.runtime.models import WorkerLease
from apps.runtime.services import hold_lease, lease_worker, release_lease, renew_lease
from apps.runtime.services.round_trips import RoundTrips
from yardkit import failpoints
from yardkit.clock import Clock
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

PURPOSE: Final = "monitor"
# Together these limit the time without a leader to 15 s.
LEASE: Final = timedelta(seconds=10)
RENEW_SECONDS: Final = 3.0
STANDBY_SECONDS: Final = 2.0
EVERY_SECONDS: Final = 5.0
PRUNE_SECONDS: Final = 600.0

# Measures and stores gauges; called every 5 s.
Sample = Callable[[datetime], object]


@dataclass(frozen=True, slots=True)
class MonitorTask:
    """Periodic task that other apps have the leading monitor run."""

    name: str
    every_seconds: float
    work: Callable[[datetime], object]


_monitor_tasks: dict[str, MonitorTask] = {}


def register_monitor_task(
    name: str, work: Callable[[datetime], object], *, every_seconds: float
) -> None:
    """Have the leading monitor call ``work(now)`` every ``every_seconds``, before it evaluates
    rules.

    A failure is logged once and the call is repeated; ``work`` must be idempotent.
    """
    _monitor_tasks[name] = MonitorTask(name, every_seconds, work)


class MonitorDaemon:
    """Each step renews the lease and, every 5 s, samples, reads events and evaluates rules."""

    def __init__(
        self,
        *,
        clock: Clock,
        identity: Identity,
        sample: Sample,
        round_trips: RoundTrips | None = None,
    ) -> None:
        self._clock = clock
        self._identity = identity
        self._sample = sample
        self._lease: WorkerLease | None = None
        self._standing_by = False
        self._timers = Timers(lambda: self._clock.monotonic())
        self._failures = FailureLog()
        self._platform = Rulebook()
        self._projects: dict[int, Rulebook] = {}
        self._changed = True
        self._rules = Rules(())
        self._reader = SourceReader()
        self._evaluator = Evaluator(self._reader)
        self._events = EventReader(self._reader)
        self._took_seconds = 0.0
        self._round_trips = round_trips or RoundTrips()
        self.follower = ConfigWatcher(kind=KIND, apply=self.use, clock=clock, identity=identity)

    @property
    def leads(self) -> bool:
        """Return whether this process held the lease at its last step."""
        return self._lease is not None

    def detail(self) -> dict[str, Any]:
        """Return the details of this daemon's heartbeat row."""
        return {
            "leads": self.leads,
            "rules": len(self._rules.all),
            "took_seconds": round(self._took_seconds, 3),
            "unasked": sorted(self._failures.failing | self._reader.failing),
            "cut": sorted(self._reader.cut),
            "queues": self._round_trips.detail(),
        }

    def setup(self) -> None:
        self.follower.setup()

    def step(self) -> bool:
        """Run one pass if it is due. Returns False: the daemon may sleep."""
        self.follower.poll()
        if not self._keep_lease() or not self._timers.due("look", EVERY_SECONDS):
            return False
        began = time.monotonic()
        try:
            self.run_pass()
        except LeaseLost:
            self._lost()
        self._took_seconds = time.monotonic() - began
        return False

    def teardown(self) -> None:
        """Release the lease, so that another monitor leads at once."""
        lease, self._lease = self._lease, None
        if lease is not None:
            release_lease(lease=lease)

    def run_pass(self) -> None:
        """Sample, read events and evaluate rules. Raises ``LeaseLost``."""
        now = self._clock.now()
        failpoints.hit("alerts.before_sampling")
        self._try("sampling", self._sample, now)
        # Written only after a successful sampling: seconds without it were not observed.
        if "sampling" not in self._failures.failing:
            record_gauges({(SAMPLED, None, ""): 1.0}, now=now)
        self._lead_on()
        for chore in _monitor_tasks.values():
            if self._timers.due(chore.name, chore.every_seconds):
                self._try(chore.name, chore.work, now)
                self._lead_on()
        failpoints.hit("alerts.before_evaluating")
        rules = self._current_rules()
        self._events.read(rules, now=now, hold=self._hold)
        self._lead_on()
        self._events.finish(rules, now=now, hold=self._hold)
        self._lead_on()
        self._evaluator.evaluate(rules, now=now, hold=self._hold)
        if self._timers.due("prune", PRUNE_SECONDS):
            prune_seen(now=now)
            prune_starts(now=now)
            prune_incidents(now=now)

    def use(self, project_id: int, active: ActiveVersion | None) -> None:
        """Activate the rules of one configuration."""
        book = Rulebook() if active is None else rulebook(active.data, active.number)
        if project_id == PLATFORM:
            self._platform = book
        elif active is None:
            self._projects.pop(project_id, None)
        else:
            self._projects[project_id] = book
        self._changed = True

    def _current_rules(self) -> Rules:
        if self._changed:
            self._rules = Rules(scoped_rules(self._platform, self._projects))
            self._changed = False
        return self._rules

    def _try(self, name: str, work: Callable[[datetime], object], now: datetime) -> None:
        try:
            work(now)
        except (LeaseLost, *DATABASE_AWAY):
            raise
        except Exception as error:  # noqa: BLE001 - logged by ``FailureLog``
            # What cannot be measured must not keep the rest from being watched.
            self._failures.failed(name, error)
        else:
            self._failures.recovered(name)

    # --- the lease -----------------------------------------------------------------------------

    def _hold(self) -> None:
        if self._lease is None:
            raise LeaseLost
        hold_lease(lease=self._lease)
        if not self._timers.left("lease"):
            # A pass with many writes may outlast the lease, and a standby waits for this row.
            renew_lease(lease=self._lease, ttl=LEASE)
            self._timers.postpone("lease", RENEW_SECONDS)

    def _lead_on(self) -> None:
        """Check the lease after calls to other servers, which may have taken most of its time."""
        if not self._keep_lease():
            raise LeaseLost

    def _keep_lease(self) -> bool:
        # Counted from before the query, so that the lease never seems longer than it is.
        if not self._timers.due("lease", RENEW_SECONDS):
            return self._lease is not None
        try:
            if self._lease is None:
                owner = f"{self._identity.host}:{self._identity.pid}:{self._identity.boot}"
                self._lease = lease_worker(purpose=PURPOSE, owner=owner, ttl=LEASE, numbers=1)
                logger.info("monitor is now the leader")
                self._standing_by = False
                self._timers.hasten("look")
            else:
                renew_lease(lease=self._lease, ttl=LEASE)
        except NoFreeNumber:
            if not self._standing_by:
                logger.info("monitor is on standby")
            self._standing_by = True
            self._timers.postpone("lease", STANDBY_SECONDS)
            return False
        except LeaseLost:
            self._lost()
            return False
        except DATABASE_AWAY:
            self._timers.hasten("lease")
            raise
        return True

    def _lost(self) -> None:
        logger.warning("leadership lost: the lease has expired")
        self._lease = None
        self._timers.hasten("lease")
