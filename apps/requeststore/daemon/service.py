"""Main thread of the fetcher: follows the configuration, starts biz workers, reports status.

The workers run in an event loop in another thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from django.conf import settings
from django.db import connection

from apps.agents.center.politeness.limits import HostRules
from apps.agents.queries import host_rules
from apps.projects.models import Project
from apps.requeststore.daemon.biz_worker import BizWorker
from apps.requeststore.daemon.fair_semaphore import FairSemaphore
from apps.requeststore.daemon.host_limits import HostThrottle
from apps.requeststore.daemon.loop import DaemonLoop
from apps.requeststore.daemon.page_keeping import new_keeper, pages_dataset
from apps.requeststore.daemon.plans import BizPlan, WorkerContext
from apps.requeststore.engine.biz import DownloaderKind
from apps.requeststore.engine.errors import RequestStoreError
from apps.requeststore.extraction.processes import close_shared_extraction_pool
from apps.requeststore.services.deliveries import ensure_delivery
from apps.requeststore.services.slots import forget_slots, keep_slots, leave_slots, use_slot
from apps.requeststore.services.store import BoundBiz, RequestStore
from apps.requeststore.sinks.factory import SinkContext
from apps.runtime.daemon import Identity
from apps.runtime.errors import DATABASE_AWAY
from yardkit.broker import Broker
from yardkit.clock import Clock
from yardkit.outage import Outage
from yardkit.timers import Timers

logger = logging.getLogger(__name__)

# Interval (seconds) of reloading project networks and host rules.
LOOK_SECONDS: Final = 2.0
SLOT_SECONDS: Final = 15.0
# With ``--once``: idle time (seconds) before exit.
IDLE_SECONDS: Final = 1.0
BUSY_PAUSE_SECONDS: Final = 0.05
# Of the 4 s that a process has to stop; the rest is for closing connections.
STOP_SECONDS: Final = 2.3
KEEPER_SECONDS: Final = 0.5
_CALL_SECONDS: Final = 5.0

# (project, biz)
Key = tuple[int, str]


class FetcherDaemon:
    """Serves every enabled biz of every project.

    Args:
        concurrency: leased requests over all bizzes.
        only: ``NAME`` or ``PROJECT/NAME`` of the bizzes to serve; empty for all.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        identity: Identity,
        clock: Clock,
        concurrency: int,
        only: Collection[str] = (),
    ) -> None:
        self._broker = broker
        self._identity = identity
        self._clock = clock
        self._concurrency = concurrency
        self._only = frozenset(only)
        self._request_store = RequestStore(
            name=f"fetcher {identity.name}", identity=identity, clock=clock
        )
        self._loop = DaemonLoop("downloads")
        self._context: WorkerContext | None = None
        self._lanes: dict[Key, BizWorker] = {}
        self._plans: dict[Key, BizPlan] = {}
        self._slots: dict[Key, int] = {}
        self._networks: dict[int, tuple[str, ...]] = {}
        self._slugs: dict[int, str] = {}
        self._timers = Timers(lambda: self._clock.monotonic())
        self._database = Outage(logger, "reading settings from the database")
        self._busy_at = 0.0

    def setup(self) -> None:
        """Read the configuration. Raises ``RequestStoreUnavailable``."""
        self._request_store.setup()
        forget_slots()
        if not self._loop.alive:
            self._loop.start()
            self._context = self._loop.do(self._make_tools(host_rules()), _CALL_SECONDS)
        self._busy_at = self._clock.monotonic()

    async def _make_tools(self, rules: HostRules) -> WorkerContext:
        context = SinkContext(broker=self._broker, now=self._now)
        keeper = new_keeper(self._broker, self._identity.name, self._clock)
        keeper.start()
        return WorkerContext(
            request_store=self._request_store,
            sinks=context,
            room=FairSemaphore(self._concurrency),
            keeper=keeper,
            hosts=HostThrottle(rules, asyncio.get_running_loop().time),
            owner=f"fetcher {self._identity.name} {self._identity.boot}",
            secret=settings.SECRET_KEY,
            broker_url=settings.BROKER_URL,
            redis_url=settings.REDIS_URL,
            redis_prefix=settings.REDIS_PREFIX if settings.REDIS_URL else "",
        )

    def step(self) -> bool:
        """Follow changes; return whether requests are, or were a second ago, in progress."""
        if not self._loop.alive:
            raise RuntimeError("the event loop has ended")
        self._request_store.poll()
        try:
            self._look()
            self._database.recovered()
        except DATABASE_AWAY as error:
            # The previous settings stay in effect.
            connection.close()
            self._database.failed(error)
        now = self._clock.monotonic()
        lanes = list(self._lanes.values())
        if any(lane.in_hand or not lane.idle for lane in lanes if not lane.problem):
            self._busy_at = now
        if now - self._busy_at >= IDLE_SECONDS:
            return False
        time.sleep(BUSY_PAUSE_SECONDS)
        return True

    def teardown(self) -> None:
        """Return waiting requests and end active ones."""
        lanes = list(self._lanes.values())
        if self._loop.alive:
            try:
                self._loop.do(_stop_all(lanes), STOP_SECONDS + 0.6)
            except TimeoutError:
                logger.warning("not everything could be given back in time; it comes back")
            self._close_keeper()
            self._loop.close()
        if self._slots:
            try:
                leave_slots(self._slots.values())
            except DATABASE_AWAY:
                connection.close()
        self._request_store.close()
        close_shared_extraction_pool()

    def _close_keeper(self) -> None:
        """Upload what is kept; what is left comes with the next fetcher of this host."""
        if self._context is None:
            return
        try:
            self._loop.do(self._context.keeper.close(KEEPER_SECONDS), KEEPER_SECONDS + 0.5)
        except TimeoutError:
            logger.warning("kept pages are left on the disk; the next fetcher uploads them")

    def detail(self) -> Mapping[str, Any]:
        """Return counters and outages for the heartbeat row."""
        bizzes: dict[str, Any] = {}
        away: dict[str, str] = {}
        for lane in list(self._lanes.values()):
            tally = lane.tally
            bizzes[lane.name] = {
                "in_hand": lane.in_hand,
                "processed": tally.processed,
                "failed": tally.failed,
                "returned": tally.returned,
                "late": tally.late,
                "records": tally.records,
            }
            if lane.problem:
                away[lane.name] = lane.problem
        if self._database.lasting:
            away["database"] = self._database.error[:300]
        only = {"only": sorted(self._only)} if self._only else {}
        return {"bizzes": bizzes, "away": away, **only}

    # --- plans ------------------------------------------------------------------------------------

    def _look(self) -> None:
        wanted = {
            (bound.project_id, bound.name): bound
            for bound in self._request_store.bizzes()
            if bound.settings.enabled and self._is_wanted(bound)
        }
        if self._timers.due("look", LOOK_SECONDS) or wanted.keys() - self._plans.keys():
            self._read_networks({project for project, _name in wanted})
            self._read_rules()
        for key in self._plans.keys() - wanted.keys():
            self._drop(key)
        for key, bound in wanted.items():
            self._serve(key, bound)
        if self._slots and self._timers.due("slots", SLOT_SECONDS):
            keep_slots(self._slots.values())

    def _is_wanted(self, bound: BoundBiz) -> bool:
        if not self._only or bound.name in self._only:
            return True
        return any(
            name == bound.name and slug == self._slug(bound.project_id)
            for slug, _slash, name in (name.rpartition("/") for name in self._only)
        )

    def _slug(self, project: int) -> str:
        if project not in self._slugs:
            slug = Project.objects.filter(pk=project).values_list("slug", flat=True).first()
            self._slugs[project] = slug or ""
        return self._slugs[project]

    def _serve(self, key: Key, bound: BoundBiz) -> None:
        project, name = key
        slot = 0
        if bound.settings.fetch.through is DownloaderKind.CENTER:
            slot = self._slots.get(key) or use_slot(
                project_id=project, biz=name, name=self._identity.name
            )
            self._slots[key] = slot
        elif key in self._slots:
            leave_slots([self._slots.pop(key)])
        known = self._plans.get(key)
        plan = BizPlan(bound, self._networks.get(project, ()), slot, known.pages if known else 0)
        if known == plan:
            return
        ensure_delivery(bound)
        plan = replace(plan, pages=pages_dataset(bound))
        self._plans[key] = plan
        if key in self._lanes:
            lane = self._lanes[key]
            self._loop.call(lambda: lane.use(plan))
        else:
            self._lanes[key] = self._loop.do(self._start(plan), _CALL_SECONDS)
            logger.info("serving %s", self._lanes[key].name)

    async def _start(self, plan: BizPlan) -> BizWorker:
        assert self._context is not None  # noqa: S101 - setup comes first
        lane = BizWorker(self._context, plan)
        lane.start()
        return lane

    def _drop(self, key: Key) -> None:
        """Stop serving a biz that was removed or disabled."""
        del self._plans[key]
        lane = self._lanes.pop(key)
        try:
            self._loop.do(lane.stop(STOP_SECONDS), STOP_SECONDS + 1.0)
        except TimeoutError:
            logger.warning("%s: not everything could be given back in time", lane.name)
        if key in self._slots:
            leave_slots([self._slots.pop(key)])
        logger.info("%s is not served any more", lane.name)

    def _read_networks(self, projects: set[int]) -> None:
        rows = Project.objects.filter(pk__in=projects).values_list("pk", "allowed_networks")
        self._networks = {pk: tuple(networks or ()) for pk, networks in rows}
        # Networks and host rules may have changed in the database.
        self._slugs.clear()

    def _read_rules(self) -> None:
        assert self._context is not None  # noqa: S101 - setup comes first
        hosts, rules = self._context.hosts, host_rules()
        self._loop.call(lambda: setattr(hosts, "rules", rules))

    def _now(self) -> int:
        return int(self._clock.time() * 1000)


async def _stop_all(lanes: list[BizWorker]) -> None:
    results = await asyncio.gather(
        *(lane.stop(STOP_SECONDS) for lane in lanes), return_exceptions=True
    )
    for error in results:
        if isinstance(error, RequestStoreError):
            logger.warning("a biz could not be ended: %s", error)
        elif isinstance(error, BaseException):
            logger.error("a biz could not be ended", exc_info=error)
