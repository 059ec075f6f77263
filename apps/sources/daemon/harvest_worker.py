"""Worker of one import: engine, record counts and lease."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from apps.projects.models import Project
from apps.runtime.errors import DATABASE_AWAY
from apps.sources.daemon.environment import CollectorContext
from apps.sources.daemon.items import as_items
from apps.sources.daemon.publisher import RecordPublisher
from apps.sources.engine.errors import ApiFailed, SourceLeaseLost
from apps.sources.engine.harvester import Harvester, HarvestResult
from apps.sources.engine.progress import Checkpoint, EndReason, Gap, HarvestCounts
from apps.sources.engine.records import RecordOrigin
from apps.sources.engine.settings import Source
from apps.sources.errors import QueueOwnedElsewhere
from apps.sources.models import Credential
from apps.sources.services.leases import LEASE_SECONDS, SourceLease, release
from apps.sources.services.progress import ActiveHarvest, begin, end_reason, finish, move, plan
from apps.sources.services.queues import claim_queue
from yardkit.backoff import Backoff
from yardkit.broker.base import Outgoing
from yardkit.clock import Clock

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Margin before the lease expires, so that a pending confirm can still arrive.
_MARGIN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Settings of a source, and the number of their version."""

    source: Source
    version: int


class HarvestWorker:
    """Runs one import; implements the context that ``engine.harvester`` needs."""

    def __init__(
        self,
        *,
        held: SourceLease,
        environment: CollectorContext,
        known: Callable[[], SourceSettings | None],
        collector: str,
        clock: Clock,
        stopping: threading.Event,
    ) -> None:
        first = known()
        if first is None:
            raise ValueError(f"unknown source {held.name}")
        self.held = held
        self.waiting_for = ""
        # Set by the main thread: a user wants the import to stop.
        self.asked_to_stop = False
        self._first = first
        self._environment = environment
        self._known = known
        self._collector = collector
        self._clock = clock
        self._stopping = stopping
        self._leased_until = clock.monotonic() + LEASE_SECONDS
        self._lost = False
        self._active: ActiveHarvest | None = None
        # Queues known to belong to this project.
        self._queues: set[str] = set()
        self._publishing = RecordPublisher(
            environment.broker,
            stop_reason=self.stop_reason,
            waiting=self._wait_for,
            pause=stopping.wait,
        )

    # --- the lease ----------------------------------------------------------------------------

    def renewed(self, at: float) -> None:
        """Record that the lease was renewed at ``at`` (monotonic clock)."""
        self._leased_until = max(self._leased_until, at + LEASE_SECONDS)

    def lose(self) -> None:
        """Stop publishing: another process has leased the source."""
        self._lost = True

    # --- a harvest ----------------------------------------------------------------------------

    def run(self) -> None:
        """Run the import to its end; failures are stored with it or logged."""
        name = self.held.name
        try:
            ended = self._harvest()
            if ended is not None:
                self._finish(ended)
                logger.info("source %s: %s %s", name, ended.why.value, ended.error)
        except SourceLeaseLost:
            logger.warning("source %s: lease lost or database unreachable", name)
        except Exception as error:
            logger.exception("source %s: the import failed unexpectedly", name)
            self._break(error)

    def _harvest(self) -> HarvestResult | None:
        first = self._first
        if self._stopping.is_set():
            self._database(lambda: release(held=self.held))
            return None
        active = self._active = self._database(
            lambda: begin(
                held=self.held,
                source=first.source,
                collector=self._collector,
                version=first.version,
                now=self._clock.now(),
            )
        )
        slug, networks, credential = self._database(lambda: self._facts(first.source))
        try:
            client = self._environment.client(self.source, credential, networks)
        except ApiFailed as failed:
            return HarvestResult(EndReason.ERROR, error=str(failed))
        try:
            return Harvester(
                origin=RecordOrigin(self.held.project_id, slug, self.held.name),
                marker=active.marker,
                checkpoint=active.checkpoint,
                client=client,
                context=self,
            ).run()
        finally:
            self._environment.submit(client.close())

    def _facts(self, source: Source) -> tuple[str, list[str], Credential | None]:
        project = Project.objects.only("slug", "allowed_networks").get(pk=self.held.project_id)
        credential = None
        if source.credentials:
            rows = Credential.objects.filter(project=project, name=source.credentials)
            credential = rows.first()
        return project.slug, list(project.allowed_networks or ()), credential

    def _finish(self, ended: HarvestResult) -> None:
        active = self._active
        if active is not None:
            self._database(lambda: finish(active=active, ended=ended, now=self._clock.now()))

    def _break(self, error: Exception) -> None:
        """Release the source after an unexpected error, and store the error."""
        text = f"{type(error).__name__}: {error}"[:300]
        try:
            self._finish(HarvestResult(EndReason.ERROR, error=text))
        except Exception as again:  # noqa: BLE001 - logged; the lease runs out all the same
            logger.warning("source %s: end of the import not stored: %s", self.held.name, again)

    # --- context of the engine -------------------------------------------------------------------

    def source(self) -> Source:
        """Return the current settings; the last known ones if the entry was removed."""
        current = self._known()
        return current.source if current is not None else self._first.source

    def stop_reason(self) -> EndReason | None:
        """Return why the import should end, or None. Raises ``SourceLeaseLost``."""
        if self._lost or self._clock.monotonic() > self._leased_until - _MARGIN_SECONDS:
            raise SourceLeaseLost("the lease could not be renewed")
        if self._stopping.is_set():
            return EndReason.SHUTDOWN
        current = self._known()
        return end_reason(
            current.source if current is not None else None,
            self._first.source,
            stopping=self.asked_to_stop,
        )

    def now(self) -> datetime:
        return self._clock.now()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the event loop of the clients."""
        return self._environment.submit(work)

    def publish(self, messages: Sequence[Outgoing]) -> int:
        """Publish with confirms to the dataset and the queue; waits during outages.

        Raises ``ApiFailed`` if the queue belongs to another project.
        """
        for name in {message.key for message in messages} - self._queues:
            try:
                self._database(partial(claim_queue, project_id=self.held.project_id, name=name))
            except QueueOwnedElsewhere as error:
                raise ApiFailed(f"queue {name}: {error}", error.code) from None
            self._queues.add(name)
        items = as_items(
            messages, project_id=self.held.project_id, source=self.held.name, at=self._clock.time()
        )
        self._publishing.publish(items)
        return self._publishing.publish(messages)

    def planned(self, checkpoint: Checkpoint, notes: list[dict[str, Any]]) -> None:
        """Store the plan."""
        active = self._active_harvest()
        self._database(lambda: plan(active=active, checkpoint=checkpoint, notes=notes))

    def moved(self, checkpoint: Checkpoint, counts: HarvestCounts, gaps: Sequence[Gap]) -> None:
        """Store the checkpoint and renew the lease."""
        active = self._active_harvest()
        at = self._clock.monotonic()
        self._database(
            lambda: move(
                active=active,
                checkpoint=checkpoint,
                counts=counts,
                gaps=gaps,
                source=self.source(),
                now=self.now(),
            )
        )
        self.renewed(at)

    def _active_harvest(self) -> ActiveHarvest:
        if self._active is None:
            raise AssertionError("the import has not begun")
        return self._active

    # --- the database ---------------------------------------------------------------------------

    def _database(self, work: Callable[[], T]) -> T:
        """Run a function in the database thread; retry during outages until the lease expires.

        Then ``SourceLeaseLost``: another collector may resume the import, so nothing may be
        written.
        """
        backoff = Backoff()
        while True:
            try:
                return self._environment.database(work)
            except DATABASE_AWAY as error:
                left = self._leased_until - _MARGIN_SECONDS - self._clock.monotonic()
                if left <= 0 or self._lost or self._stopping.is_set():
                    raise SourceLeaseLost("the database is unreachable") from error
                self._stopping.wait(min(left, backoff.seconds()))

    def _wait_for(self, what: str) -> None:
        if what and not self.waiting_for:
            logger.warning("source %s: waiting: %s", self.held.name, what)
        elif self.waiting_for and not what:
            logger.info("source %s: continuing", self.held.name)
        self.waiting_for = what
