"""Settings and shared services of the biz workers in one fetcher."""

from __future__ import annotations

from dataclasses import dataclass

from apps.agents.downloader.kept import PageKeeper
from apps.requeststore.daemon.center_transport import CenterTransport
from apps.requeststore.daemon.fair_semaphore import FairSemaphore
from apps.requeststore.daemon.host_limits import HostThrottle
from apps.requeststore.daemon.transports import DirectTransport, Done, PageTransport
from apps.requeststore.engine.biz import DownloaderKind
from apps.requeststore.queues.base import RequestQueue
from apps.requeststore.queues.factory import open_queue
from apps.requeststore.services.store import BoundBiz, RequestStore
from apps.requeststore.sinks.base import Sink
from apps.requeststore.sinks.factory import SinkContext, open_sink
from yardkit.tokens import sign_run_token


@dataclass(frozen=True, slots=True)
class BizPlan:
    """Settings to serve a biz with. ``networks``: private networks its project may reach;
    ``slot``: its number at the center, 0 for direct downloads; ``pages``: dataset of its kept
    pages, 0 if none are kept.
    """

    bound: BoundBiz
    networks: tuple[str, ...]
    slot: int = 0
    pages: int = 0


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """Services shared by the biz workers of a process."""

    request_store: RequestStore
    sinks: SinkContext
    room: FairSemaphore
    keeper: PageKeeper
    hosts: HostThrottle
    owner: str
    secret: str
    broker_url: str
    redis_url: str
    redis_prefix: str


def new_queue(context: WorkerContext, bound: BoundBiz) -> RequestQueue:
    """Open the queue for one worker; closing it returns prefetched entries.

    Raises ``RequestStoreError``.
    """
    return open_queue(
        bound.queue_name,
        redis_url=context.redis_url,
        redis_prefix=context.redis_prefix,
        broker=context.sinks.broker,
        consumer=context.request_store.name,
    )


def new_sink(context: WorkerContext, bound: BoundBiz) -> Sink:
    """Open the sink. Raises ``BadSetting``."""
    return open_sink(
        context.sinks, project_id=bound.project_id, biz=bound.name, records=bound.settings.records
    )


def new_transport(context: WorkerContext, plan: BizPlan, done: Done) -> PageTransport:
    """Open the downloader. Raises ``BadSetting``."""
    fetch = plan.bound.settings.fetch
    if fetch.through is DownloaderKind.DIRECT:
        return DirectTransport(fetch, plan.networks, hosts=context.hosts, done=done)
    return CenterTransport(
        fetch,
        plan.networks,
        slot=plan.slot,
        token=sign_run_token(context.secret, -plan.slot),
        broker_url=context.broker_url,
        done=done,
    )
