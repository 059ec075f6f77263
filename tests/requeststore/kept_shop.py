"""A request group whose pages are kept, as a fetcher keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from apps.datasets.engine.item_types import Item, ItemQuery
from apps.datasets.models import Dataset
from apps.datasets.queries.items import open_reader
from apps.datasets.services.ingestion import store_items
from apps.datasets.states import Kind
from apps.projects.models import Project
from apps.queuestats.services.counters import store_counters
from apps.requeststore.daemon.batch_end import BatchEnd, BizCounters, EndParts
from apps.requeststore.daemon.page_extractor import PageExtractor
from apps.requeststore.daemon.page_keeping import keep_pages, new_keeper, pages_dataset
from apps.requeststore.daemon.work import DownloadedPage, LeasedRequest, Result
from apps.requeststore.engine.entity import decode_entity
from apps.requeststore.models import Reextraction
from apps.requeststore.queues.base import TakenEntry
from apps.requeststore.services.reextractions import start_reextraction
from apps.requeststore.services.store import BoundBiz, RequestStore, shared_request_store
from apps.requeststore.sinks.factory import SinkContext, open_sink
from apps.requeststore.stores.base import QueueEntry
from apps.runtime.services import shared_broker
from tests.requeststore.factories import make_bizzes, pages, save_bizzes
from yardkit import topology
from yardkit.clock import SystemClock
from yardkit.protocol import ItemBatch, PageCounters, decode
from yardkit.shared_queues import declare_shared

OLD = {"page": {"fields": {"title": "h1"}}}
NEW = {"page": {"each": "li", "fields": {"name": "b", "price": {"css": "i", "as": "integer"}}}}
BODY = "<h1>Shop {0}</h1><ul><li><b>A{0}</b><i>1</i></li><li><b>B{0}</b><i>2</i></li></ul>"


class Shop:
    """A request group of five requests that are processed, and whose pages are kept."""

    def __init__(self, number: int = 5, results: Mapping[int, Result] | None = None) -> None:
        self.settings: dict[str, Any] = {"rules": OLD, "pages": {"keep": "all"}}
        self.project: Project = make_bizzes(news=self.settings)
        self.store: RequestStore = shared_request_store()
        declare_shared(shared_broker())
        self.ids = self.process(number, results or {})

    @property
    def bound(self) -> BoundBiz:
        return self.store.biz(self.project.pk, "news")

    def change(self, **settings: Any) -> None:
        self.settings |= settings
        save_bizzes(self.project, news=self.settings)
        self.store.wake()
        self.store.poll()

    def process(self, number: int, results: Mapping[int, Result] | None = None) -> list[int]:
        bound, now = self.bound, self.store.now()
        ids = self.store.submit(bound, pages(number, meta={"shop": 7}), by="test", now=now)
        self.end(ids, now, results or {})
        return ids

    def end(self, ids: list[int], ts: int, results: Mapping[int, Result]) -> None:
        """As a fetcher ends them."""
        bound = self.bound
        taken = [TakenEntry(QueueEntry(number, "news", ts), None) for number in ids]
        takes = self.store.take(bound, taken, owner="fetcher", now=self.store.now())
        ended: list[tuple[LeasedRequest, Result]] = []
        for at, take in enumerate(takes):
            assert take.request is not None
            work = LeasedRequest(taken[at], take.request, decode_entity(take.request.data), 0.0)
            headers = [("Content-Type", "text/html"), ("Content-Encoding", "gzip")]
            page = DownloadedPage(work.entity.url, 200, headers, BODY.format(at).encode())
            ended.append((work, results.get(at, page)))
        context = SinkContext(broker=shared_broker(), now=self.store.now)
        sink = open_sink(
            context, project_id=bound.project_id, biz="news", records=bound.settings.records
        )
        parts = EndParts(
            bound,
            PageExtractor(bound.settings.rules),
            sink,
            self.store.queue(bound),
            pages_dataset(bound),
        )
        batches: list[BatchEnd] = []
        while ended:
            batch = BatchEnd(parts, self.store, "fetcher", self.store.now, ended, BizCounters())
            batch.step()
            batches.append(batch)
            # Pages for which no time was left.
            ended = list(batch.rest)
        asyncio.run(_kept(batches))
        self.write()

    def write(self) -> None:
        """As the writer of datasets and the statistics do."""
        batches = [m for m in _messages(topology.ITEMS.name) if isinstance(m, ItemBatch)]
        assert store_items(messages=batches, now=timezone.now()) == []
        counters = [m for m in _messages(topology.STATISTICS.name) if isinstance(m, PageCounters)]
        assert store_counters(messages=counters, now=timezone.now()) == []

    def start(self, **selection: Any) -> Reextraction:
        return start_reextraction(
            project_id=self.project.pk, biz="news", actor_label="test", **selection
        )

    def items(self) -> list[Item]:
        dataset = Dataset.objects.get(project=self.project, kind=Kind.ITEMS)
        with open_reader(dataset) as reader:
            return reader.page(ItemQuery(limit=1000)).items


async def _kept(batches: list[BatchEnd]) -> None:
    keeper = new_keeper(shared_broker(), "f1", SystemClock())
    keeper.start()
    for batch in batches:
        keep_pages(keeper, batch)
    await keeper.close(20)


def _messages(queue: str) -> list[Any]:
    subscription = shared_broker().subscribe(queue, prefetch=100)
    deliveries = subscription.take(100, timeout=0.5)
    subscription.ack(deliveries)
    subscription.close()
    return [decode(delivery.body) for delivery in deliveries]
