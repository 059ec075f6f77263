"""Collector: imports enabled sources in parallel, each leased by one collector.

The main thread follows the settings, polls the rows twice a second, renews the leases and starts a
thread for each source. Any number of collectors share the sources of all projects.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Final

from django.db import connections
from msgspec.structs import replace

from apps.configcenter.services import ActiveVersion, ConfigWatcher
from apps.runtime.daemon import Identity
from apps.runtime.errors import DATABASE_AWAY
from apps.sources.daemon.environment import CollectorContext
from apps.sources.daemon.harvest_worker import HarvestWorker, SourceSettings
from apps.sources.engine.errors import SourceLeaseLost
from apps.sources.engine.settings import Source, SourceCatalog, catalog_of
from apps.sources.models import SourceState
from apps.sources.queries import KIND
from apps.sources.services.leases import (
    SourceLease,
    abandon,
    claim,
    queue_auto_start,
    queue_due,
    renew,
)
from apps.sources.states import Reason, SourceActivity
from yardkit.clock import Clock
from yardkit.stop import Stop
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

STEP_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 0.4
RENEW_SECONDS: Final = 3.0
# Pause while there are no sources.
IDLE_SECONDS: Final = 1.0
# Of the 4 s in which a process must exit; the rest is for closing connections.
_END_SECONDS: Final = 3.3


@dataclass(slots=True)
class _Project:
    book: SourceCatalog
    version: int


class CollectorDaemon:
    """Daemon of the module docstring.

    ``threads=False`` runs imports one after the other in ``step``, for tests and databases that
    threads cannot share. ``at_once`` is the number of concurrent imports of this process.
    """

    def __init__(
        self,
        *,
        environment: CollectorContext,
        clock: Clock,
        identity: Identity,
        threads: bool = True,
        at_once: int = 50,
        stop: Stop | None = None,
    ) -> None:
        self._environment = environment
        self._clock = clock
        self._name = identity.name
        self._owner = f"{identity.name} {identity.boot}"
        self._threads = threads
        self._at_once = at_once
        self._stop = stop
        self._stopping = threading.Event()
        self._projects: dict[int, _Project] = {}
        # Sources to start with this process or after a change of their settings (``auto_start``).
        self._fresh: dict[tuple[int, str], Source] = {}
        self._works: dict[int, tuple[HarvestWorker, threading.Thread | None]] = {}
        self._timers = Timers(clock.monotonic)
        self._active_at = clock.monotonic()
        self.rules = ConfigWatcher(kind=KIND, apply=self._use, clock=clock, identity=identity)

    def setup(self) -> None:
        """Apply the active settings; start enabled sources with ``auto_start``."""
        self.rules.setup()

    def step(self) -> bool:
        """Apply settings and claim sources; return whether any was claimed."""
        self.rules.poll()
        self._reap()
        if self._timers.due("look", LOOK_SECONDS):
            try:
                self._look()
            except DATABASE_AWAY:
                # Imports continue while their leases last; the loop reports the outage.
                self._timers.postpone("look", RENEW_SECONDS)
                raise
        if self._works:
            self._active_at = self._clock.monotonic()
        if self._threads:
            self._wait(STEP_SECONDS)
        return self._clock.monotonic() < self._active_at + IDLE_SECONDS

    def teardown(self) -> None:
        """Interrupt every import after its current batch; another collector resumes it."""
        end = time.monotonic() + _END_SECONDS
        self._stopping.set()
        for _work, thread in self._works.values():
            if thread is not None:
                thread.join(max(0.0, end - time.monotonic()))
        late = [work.held.name for work, thread in self._works.values() if _alive(thread)]
        if late:
            logger.warning("%s did not end in time; the lease will expire", ", ".join(late))
        self._environment.close()

    # --- settings -----------------------------------------------------------------------------

    def _use(self, project_id: int, active: ActiveVersion | None) -> None:
        book = catalog_of(active.data) if active is not None else SourceCatalog()
        before = self._projects.get(project_id)
        known = before.book.sources if before is not None else {}
        self._projects[project_id] = _Project(book, active.number if active is not None else 0)
        for name, source in book.sources.items():
            old = known.get(name)
            if old is None or old != source:
                began = source.enabled and (old is None or not old.enabled)
                self._fresh[project_id, name] = source if began else _without_start(source)

    def _known(self, project_id: int, name: str) -> SourceSettings | None:
        project = self._projects.get(project_id)
        source = project.book.sources.get(name) if project is not None else None
        if project is None or source is None:
            return None
        return SourceSettings(source, project.version)

    # --- the rows -----------------------------------------------------------------------------

    def _look(self) -> None:
        self._begin_fresh()
        self._start_due()
        self._watch()
        free = self._at_once - len(self._works)
        if free > 0 and not self._stopping.is_set():
            taken = claim(
                limit=free, collector=self._name, owner=self._owner, now=self._clock.now()
            )
            for held in taken:
                self._take(held)

    def _begin_fresh(self) -> None:
        for project_id, name in list(self._fresh):
            source = self._fresh[project_id, name]
            now = self._clock.now()
            # Compute its next cron time first: it may be a minute from now.
            queue_due(project_id=project_id, name=name, source=source, now=now)
            if source.enabled and source.auto_start:
                queue_auto_start(project_id=project_id, name=name, collector=self._name, now=now)
            del self._fresh[project_id, name]

    def _start_due(self) -> None:
        now = self._clock.now()
        due = SourceState.objects.filter(next_run_at__lte=now)
        for project_id, name in due.values_list("project_id", "name"):
            known = self._known(project_id, name)
            if known is not None and known.source.enabled:
                queue_due(project_id=project_id, name=name, source=known.source, now=now)
            else:
                SourceState.objects.filter(project_id=project_id, name=name).update(
                    next_run_at=None, schedule=""
                )

    def _take(self, held: SourceLease) -> None:
        # The process that started it may know newer settings.
        self.rules.wake()
        self.rules.poll()
        known = self._known(held.project_id, held.name)
        if known is None or not known.source.enabled:
            abandon(held=held, reason=Reason.SWITCHED_OFF, now=self._clock.now())
            return
        if held.stopping:
            abandon(held=held, reason=Reason.MANUAL, now=self._clock.now())
            return
        work = HarvestWorker(
            held=held,
            environment=self._environment,
            known=lambda: self._known(held.project_id, held.name),
            collector=self._name,
            clock=self._clock,
            stopping=self._stopping,
        )
        self._active_at = self._clock.monotonic()
        if not self._threads:
            work.run()
            return
        thread = threading.Thread(target=_run, args=(work,), name=f"source {held.name}")
        thread.daemon = True
        self._works[held.pk] = (work, thread)
        thread.start()

    def _watch(self) -> None:
        """Renew leases and check for stop requests."""
        if not self._works:
            return
        rows = {
            pk: (generation, activity)
            for pk, generation, activity in SourceState.objects.filter(
                pk__in=list(self._works)
            ).values_list("pk", "generation", "activity")
        }
        due = self._timers.due("renew", RENEW_SECONDS)
        for pk, (work, _thread) in self._works.items():
            generation, activity = rows.get(pk, (0, ""))
            work.asked_to_stop = activity == SourceActivity.STOPPING
            if generation != work.held.generation:
                work.lose()
            elif due:
                self._renew(work)

    def _renew(self, work: HarvestWorker) -> None:
        at = self._clock.monotonic()
        try:
            renew(held=work.held, now=self._clock.now(), waiting_for=work.waiting_for)
        except SourceLeaseLost:
            work.lose()
        else:
            work.renewed(at)

    def _reap(self) -> None:
        for pk, (_work, thread) in list(self._works.items()):
            if not _alive(thread):
                del self._works[pk]
                self._timers.hasten("look")

    def _wait(self, seconds: float) -> None:
        if self._stop is not None:
            self._stop.wait(seconds)
        else:
            self._stopping.wait(seconds)


def _alive(thread: threading.Thread | None) -> bool:
    return thread is not None and thread.is_alive()


def _run(work: HarvestWorker) -> None:
    try:
        work.run()
    finally:
        connections.close_all()


def _without_start(source: Source) -> Source:
    """Disable ``auto_start`` of a source that existed before: changed settings do not start it."""
    return replace(source, auto_start=False)
