"""Requests in MongoDB, their entries in Redis, as the patent has it; fetchers of either make."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import redis
from django.conf import LazySettings
from pymongo import MongoClient

from apps.requeststore.engine.flags import PROCESSED
from apps.requeststore.models import NodeReport
from apps.requeststore.queries.accounting import standings
from apps.requeststore.queues.factory import redis_key
from apps.requeststore.services.store import RequestStore, close_shared_request_store
from apps.requeststore.services.upkeep import upkeep_once
from apps.requeststore.stores.base import Finish
from tests.requeststore.factories import make_bizzes, pages

pytestmark = [pytest.mark.django_db, pytest.mark.services]

SPLITS = 3


@pytest.fixture
def patent_yard(
    settings: LazySettings,
    request_nodes: dict[str, str],
    mongodb: str,
    mongodb_prefix: str,
    redis_url: str,
) -> Iterator[RequestStore]:
    settings.REQUESTS_NODES = {"default": mongodb}
    settings.REQUESTS_PREFIX = mongodb_prefix
    settings.REDIS_URL = redis_url
    settings.REDIS_PREFIX = mongodb_prefix
    close_shared_request_store()
    made = RequestStore(name="tester")
    yield made
    made.close()


def process(url: str, database: str, entry: bytes) -> Any:
    """What the patent says of a download server; it knows neither our code nor our fields."""
    named = json.loads(entry)
    number = int(named["id"])
    moment = datetime.fromtimestamp(named["ts"] / 1000, UTC)
    with MongoClient[dict[str, Any]](url) as client:
        found = client[database][f"requests_{number % SPLITS:03d}"].find_one_and_update(
            {"_id": number, "biz": named["biz"], "ts": moment, "flag": 0}, {"$set": {"flag": 1}}
        )
    return found and msgspec.msgpack.decode(found["data"])


@pytest.mark.covers("S4.11", "S4.15", "S4.19", "S4.20", "S4.22", "S4.30")
def test_the_way_of_a_request(
    patent_yard: RequestStore, mongodb: str, mongodb_prefix: str, redis_url: str
) -> None:
    yard = patent_yard
    project = make_bizzes(news={"epochs": [{"splits": SPLITS, "nodes": ["default"]}]})
    yard.setup()
    bound = yard.biz(project.pk, "news")
    now = yard.now()
    ids = yard.submit(bound, pages(12), by="tester", now=now)
    key = redis_key(mongodb_prefix, bound.queue_name)
    with redis.Redis.from_url(redis_url) as client:
        assert client.llen(key) == 12
        popped = [client.brpop([key], 5)[1] for _ in range(4)]
    assert [json.loads(each)["id"] for each in popped] == [str(number) for number in ids[:4]]
    database = bound.places[0].shard.database
    theirs = [process(mongodb, database, entry) for entry in popped]
    assert [each["url"] for each in theirs] == [page.url for page in pages(4)]
    assert [process(mongodb, database, entry) for entry in popped] == [None] * 4

    queue = yard.queue(bound)
    entries = queue.take(20, timeout=2.0)
    takes = yard.take(bound, entries, owner="fetcher 1", now=now)
    ours = [take.request for take in takes if take.request is not None]
    assert [each.id for each in ours] == ids[4:]
    ends = [(each, Finish(each.id, each.tries, PROCESSED)) for each in ours]
    assert set(yard.finish(bound, ends, owner="fetcher 1", now=now)) == {"done"}
    queue.settle(entries)
    assert (queue.stats().waiting, queue.stats().taken) == (0, 0)
    counted = [yard.node(each.node).count(each.shard).by_flag for each in bound.places]
    assert sum(each[PROCESSED] for each in counted) == 12
    assert [len(each) for each in counted] == [1] * SPLITS
    found = yard.find(ids[0])
    assert found is not None
    assert found.request.flag == PROCESSED

    # The sixth module: what was watched meanwhile.
    upkeep_once(yard, now=yard.now())
    one = standings([project.pk], by_flag=True)[project.pk, "news"]
    assert (one.stored, one.ended, one.new, one.balanced) == (12, {PROCESSED: 12}, 0, True)
    assert one.queue is not None
    assert (one.queue.waiting, one.queue.problem) == (0, "")
    node = NodeReport.objects.get(name="default")
    assert (node.kind, node.problem) == ("mongodb", "")
