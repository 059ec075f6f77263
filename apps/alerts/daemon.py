"""run_monitor: of several, the one that leads samples, evaluates rules and opens incidents.

The others stand by. Nothing is kept in memory that the next leader would miss: rules come from
their configuration, what is true from stored samples and from the sources, what was told from the
incidents. So one that is killed is followed by another within 15 s, which goes on where it was.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from apps.alerts.engine.reading import rulebook
from apps.alerts.engine.rules import Rulebook, scoped_rules
from apps.alerts.queries.rules import KIND
from apps.alerts.queries.samples import SAMPLED
from apps.alerts.services.asking import SERVER_AWAY, Asker
from apps.alerts.services.evaluating import Evaluator, Rules
from apps.alerts.services.happenings import EventReader, prune_seen
from apps.alerts.services.housekeeping import prune_incidents
from apps.alerts.services.lasting import prune_lasting
from apps.configcenter.services import PLATFORM, Active, ConfigWatcher
from apps.queuestats.services import record_gauges
from apps.runtime.daemon import Identity
from apps.runtime.errors import DATABASE_AWAY, LeaseLost, NoFreeNumber
from apps.runtime.models import WorkerLease
from apps.runtime.services import hold_lease, lease_worker, release_lease, renew_lease
from yardkit import failpoints
from yardkit.clock import Clock
from yardkit.errors import first_line
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

PURPOSE: Final = "monitor"
# Together they keep the time without a leader below 15 s.
LEASE: Final = timedelta(seconds=10)
RENEW_SECONDS: Final = 3.0
STANDBY_SECONDS: Final = 2.0
EVERY_SECONDS: Final = 5.0
PRUNE_SECONDS: Final = 600.0

# Measures what there is and stores it; called every 5 s.
Sample = Callable[[datetime], object]


@dataclass(frozen=True, slots=True)
class Chore:
    """Something else that the leading monitor does again and again."""

    name: str
    every_seconds: float
    work: Callable[[datetime], object]


_chores: dict[str, Chore] = {}


def register_chore(name: str, work: Callable[[datetime], object], *, every_seconds: float) -> None:
    """Have the leading monitor call ``work(now)`` every so many seconds, before it evaluates.

    What fails is logged once and tried again; it must be harmless to repeat.
    """
    _chores[name] = Chore(name, every_seconds, work)


class MonitorDaemon:
    """One step: keep the lease, and when it is time sample, read events and evaluate."""

    def __init__(self, *, clock: Clock, identity: Identity, sample: Sample) -> None:
        self._clock = clock
        self._identity = identity
        self._sample = sample
        self._lease: WorkerLease | None = None
        self._renew_at = 0.0
        self._look_at = 0.0
        self._standing_by = False
        self._timers = Timers(lambda: self._clock.monotonic())
        self._failing: set[str] = set()
        self._platform = Rulebook()
        self._projects: dict[int, Rulebook] = {}
        self._changed = True
        self._rules = Rules(())
        self._asker = Asker()
        self._evaluator = Evaluator(self._asker)
        self._events = EventReader(self._asker)
        self._took_seconds = 0.0
        self.follower = ConfigWatcher(kind=KIND, apply=self.use, clock=clock, identity=identity)

    @property
    def leads(self) -> bool:
        """Whether it held the lease at its last look."""
        return self._lease is not None

    def detail(self) -> dict[str, Any]:
        """For the row of its heartbeat."""
        return {
            "leads": self.leads,
            "rules": len(self._rules.all),
            "took_seconds": round(self._took_seconds, 3),
            "unasked": sorted(self._failing | self._asker.failing),
            "cut": sorted(self._asker.cut),
        }

    def setup(self) -> None:
        """Read the rules."""
        self.follower.setup()

    def step(self) -> bool:
        """One look when it is time; False: nothing to do for now."""
        self.follower.poll()
        if not self._keep_lease():
            return False
        if self._clock.monotonic() < self._look_at:
            return False
        self._look_at = self._clock.monotonic() + EVERY_SECONDS
        began = time.monotonic()
        try:
            self.look()
        except LeaseLost:
            self._lost()
        self._took_seconds = time.monotonic() - began
        return False

    def teardown(self) -> None:
        """Let another one lead at once."""
        lease, self._lease = self._lease, None
        if lease is not None:
            release_lease(lease=lease)

    def look(self) -> None:
        """Sample, read events, evaluate. Raises ``LeaseLost``."""
        now = self._clock.now()
        failpoints.hit("alerts.before_sampling")
        self._try("sampling", self._sample, now)
        # With the sampling, so that a second in which it failed is known to be one without.
        if "sampling" not in self._failing:
            record_gauges({(SAMPLED, None, ""): 1.0}, now=now)
        self._lead_on()
        for chore in _chores.values():
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
            prune_lasting(now=now)
            prune_incidents(now=now)

    def use(self, project_id: int, active: Active | None) -> None:
        """Take over the rules of one configuration."""
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
        except Exception as error:
            # What cannot be measured must not keep the rest from being watched.
            if name not in self._failing:
                defect = None if isinstance(error, SERVER_AWAY) else error
                logger.error("%s fails: %s", name, first_line(error), exc_info=defect)
            self._failing.add(name)
        else:
            self._failing.discard(name)

    # --- the lease -----------------------------------------------------------------------------

    def _hold(self) -> None:
        if self._lease is None:
            raise LeaseLost
        hold_lease(lease=self._lease)
        if self._clock.monotonic() >= self._renew_at:
            # A look that writes much may take longer than the lease; the others wait for the row.
            renew_lease(lease=self._lease, ttl=LEASE)
            self._renew_at = self._clock.monotonic() + RENEW_SECONDS

    def _lead_on(self) -> None:
        """Servers that do not answer may have taken some of the lease's time."""
        if not self._keep_lease():
            raise LeaseLost

    def _keep_lease(self) -> bool:
        now = self._clock.monotonic()
        if now < self._renew_at:
            return self._lease is not None
        try:
            if self._lease is None:
                owner = f"{self._identity.host}:{self._identity.pid}:{self._identity.boot}"
                self._lease = lease_worker(purpose=PURPOSE, owner=owner, ttl=LEASE, numbers=1)
                logger.info("this monitor leads")
                self._standing_by, self._look_at = False, 0.0
            else:
                renew_lease(lease=self._lease, ttl=LEASE)
        except NoFreeNumber:
            if not self._standing_by:
                logger.info("another monitor leads; this one stands by")
            self._standing_by, self._renew_at = True, now + STANDBY_SECONDS
            return False
        except LeaseLost:
            self._lost()
            return False
        # From before the question: the lease must not seem longer to us than it is.
        self._renew_at = now + RENEW_SECONDS
        return True

    def _lost(self) -> None:
        logger.warning("this monitor was out for too long: another one leads")
        self._lease, self._renew_at = None, 0.0
