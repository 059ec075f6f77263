"""Scheduler that wakes workers when tasks are due; one leader among several, by a lease.

Beat sends wake-ups only: duplicates or losses change nothing but the delay.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from datetime import datetime, timedelta
from typing import Any, Final

from amqp.exceptions import AMQPError
from celery.beat import SchedulingError
from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry
from kombu.exceptions import KombuError

from apps.runtime.errors import LeaseLost, NoFreeNumber
from apps.runtime.models import WorkerLease
from apps.runtime.queries import live_daemons
from apps.runtime.services import lease_worker, release_lease, renew_lease
from yardkit import failpoints

logger = logging.getLogger(__name__)

PURPOSE: Final = "beat"
# Together they keep a failover below 15 s.
LEASE: Final = timedelta(seconds=10)
RENEW_SECONDS: Final = 3.0
STANDBY_SECONDS: Final = 2.0
# Pause after a failure of the broker, so that not every due entry tries to connect.
MUTE_SECONDS: Final = 5.0


class ExpiringEntry(ModelEntry):  # type: ignore[misc]
    """Entry whose message expires in the broker when no worker takes it in time.

    Celery writes a wall-clock time into the message instead; a worker whose clock is ahead would
    take every wake-up for a stale one.
    """

    def __init__(self, model: Any, app: Any = None) -> None:
        super().__init__(model, app=app)
        seconds = self.options.pop("expires", None)
        if isinstance(seconds, int):
            self.options["expiration"] = seconds


class LeaderScheduler(DatabaseScheduler):  # type: ignore[misc]
    """Scheduler that ticks only while it holds the lease; other instances stand by."""

    Entry = ExpiringEntry
    # Messages use connections of the application's pool: while the broker is unreachable, waiting
    # for an own connection would lose the lease.
    producer = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._lease: WorkerLease | None = None
        self._renew_at = 0.0
        self._mute_until = 0.0
        self._standing_by = False
        self._seen: datetime | None = None
        super().__init__(*args, **kwargs)
        self.max_interval = STANDBY_SECONDS

    @property
    def leads(self) -> bool:
        """Whether it held the lease at the last check."""
        return self._lease is not None

    def setup_schedule(self) -> None:
        """Do nothing: only the leader reads the rows."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send due wake-ups; return the seconds until the next call."""
        if not self._keep_lease():
            return STANDBY_SECONDS
        failpoints.hit("beat.tick")
        try:
            return float(super().tick(*args, **kwargs) or 0.0)
        except BaseException:
            # Celery removes an entry before sending it: an entry whose connection broke was not
            # sent again until a row changed.
            self._reload()
            raise

    def close(self) -> None:
        """Store the times of the last runs and release the lease."""
        lease, self._lease = self._lease, None
        try:
            if self._schedule is not None:
                super().close()
        finally:
            if lease is not None:
                release_lease(lease=lease)

    def schedule_changed(self) -> bool:
        """Return whether a row has changed; the loop reports database outages."""
        last: datetime | None = self._seen
        self._seen = self.Changes.last_change()
        return self._seen != last

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send one wake-up, unless no daemon listens or the broker is unreachable."""
        if time.monotonic() < self._mute_until or not live_daemons(kind="worker").exists():
            return
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except (SchedulingError, KombuError, AMQPError, OSError) as error:
            self._mute_until = time.monotonic() + MUTE_SECONDS
            logger.warning("%s is not sent: %s", entry.name, error)

    def _keep_lease(self) -> bool:
        if self._lease is not None and time.monotonic() < self._renew_at:
            return True
        # Measured before the call, so that the lease is never assumed longer than it is.
        asked_at = time.monotonic()
        try:
            if self._lease is None:
                self._lease = lease_worker(purpose=PURPOSE, owner=self._owner, ttl=LEASE, numbers=1)
                self._take_over()
            else:
                renew_lease(lease=self._lease, ttl=LEASE)
        except NoFreeNumber:
            if not self._standing_by:
                logger.info("another beat leads; this one stands by")
            self._standing_by = True
            return False
        except LeaseLost:
            logger.warning("beat lease expired; another beat process leads")
            self._lease = None
            return False
        self._renew_at = asked_at + RENEW_SECONDS
        return True

    def _take_over(self) -> None:
        logger.info("this beat leads")
        self._standing_by = False
        known = self.app.tasks
        for name, entry in self.app.conf.beat_schedule.items():
            if entry["task"] in known:
                self.Entry.from_entry(name, app=self.app, **entry)
        # The previous leader has changed the rows. Own writes must not count as a change: one that
        # is detected while the entries are sorted would send due entries twice.
        self._reload()
        self._seen = self.Changes.last_change()

    def _reload(self) -> None:
        """Discard the in-memory schedule; repeated wake-ups are harmless."""
        self._dirty.clear()
        self._initial_read = True
        self._heap = None


class BeatDaemon:
    """The scheduler as a daemon's steps."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._scheduler: LeaderScheduler | None = None
        self._due_at = 0.0

    def setup(self) -> None:
        """Register every task, then schedule."""
        self._app.loader.import_default_modules()
        self._app.finalize()
        self._scheduler = LeaderScheduler(app=self._app)

    def step(self) -> bool:
        """Tick when it is due."""
        if self._scheduler is None or time.monotonic() < self._due_at:
            return False
        seconds = self._scheduler.tick()
        self._due_at = time.monotonic() + seconds
        return seconds <= 0

    def teardown(self) -> None:
        """Release the lease."""
        if self._scheduler is not None:
            self._scheduler.close()
