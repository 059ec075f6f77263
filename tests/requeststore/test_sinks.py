"""Sinks of records: the dataset of a biz, and a queue beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pika
import pytest

from apps.requeststore.engine.biz import DestinationKind, Records
from apps.requeststore.engine.errors import BadSetting
from apps.requeststore.sinks.base import RequestRecords, Sink, SinkUnavailable
from apps.requeststore.sinks.factory import SinkContext, open_sink, table_of
from yardkit import topology
from yardkit.broker import Broker, connect
from yardkit.items.batches import read_batch
from yardkit.protocol import MAX_ITEM_BYTES, ItemBatch, decode

NOW = 1_790_000_000_000
Rows = list[dict[str, Any]]


def gathered(number: int, *rows: dict[str, Any], **fields: Any) -> RequestRecords:
    values: dict[str, Any] = {
        "request_id": number,
        "ts": NOW,
        "biz": "news",
        "rule": "article",
        "url": "http://a.example/",
        "fetched_at": NOW,
        "rows": rows,
    }
    return RequestRecords(**(values | fields))


@pytest.fixture
def context(broker: Broker) -> SinkContext:
    broker.declare(*topology.SHARED)
    return SinkContext(broker, lambda: NOW)


def opened(
    context: SinkContext, to: DestinationKind = DestinationKind.DATASET, **fields: Any
) -> Sink:
    return open_sink(context, project_id=7, biz="news", records=Records(to=to, **fields))


def read_items(broker: Broker) -> Iterator[ItemBatch]:
    with closing(broker.subscribe(topology.ITEMS.name)) as subscription:
        for delivery in subscription.take(1000, timeout=5):
            batch = decode(delivery.body)
            assert isinstance(batch, ItemBatch)
            yield batch


def read_queue(broker: Broker, queue: str = "records.p7.news") -> Rows:
    with closing(broker.subscribe(queue)) as subscription:
        return [json.loads(each.body) for each in subscription.take(1000, timeout=5)]


@pytest.mark.covers("S4.20", "S4.21", "DS.3")
@pytest.mark.parametrize("to", [to for to in DestinationKind if to is not DestinationKind.NOWHERE])
def test_records_become_items_named_by_their_request(
    context: SinkContext, to: DestinationKind
) -> None:
    with closing(opened(context, to)) as sink:
        batch = [gathered(2**62, {"title": "a"}, {"title": "b"}, meta={"k": 1}), gathered(3)]
        assert sink.write(batch) == {}

    (sent,) = read_items(context.broker)
    assert (sent.producer, sent.boot, sent.first) == ("biz:7/news", f"r{2**62}", 1)
    assert sent.once == f"biz:7/news/{2**62}"
    assert [(item.url, item.data) for item in read_batch(sent)] == [
        ("http://a.example/", {"title": title, "_rule": "article", "_meta": {"k": 1}})
        for title in ("a", "b")
    ]


def test_strange_texts_are_kept_as_far_as_they_can_be(context: SinkContext) -> None:
    with closing(opened(context)) as sink:
        record = {"title": "nul\0 \ud800 中文", "more": {"k\0": ["\0"]}}
        assert sink.write([gathered(1, record, url="http://a/\ud800", meta={"\0": "\0"})]) == {}

    (sent,) = read_items(context.broker)
    (item,) = read_batch(sent)
    assert item.data["title"] == "nul ? 中文"


def test_a_record_that_is_too_large_is_refused_alone(context: SinkContext) -> None:
    with closing(opened(context)) as sink:
        refused = sink.write(
            [gathered(1, {"a": "x" * MAX_ITEM_BYTES}), gathered(2, {"a": "small"})]
        )
    assert list(refused) == [1]
    assert str(MAX_ITEM_BYTES) in refused[1]
    assert [sent.boot for sent in read_items(context.broker)] == ["r2"]


def test_nowhere_keeps_nothing(context: SinkContext) -> None:
    with closing(opened(context, DestinationKind.NOWHERE)) as sink:
        assert sink.write([gathered(1, {"title": "a"})]) == {}
    assert context.broker.depth(topology.ITEMS.name).ready == 0


def test_messages_have_the_ids_of_their_records(context: SinkContext) -> None:
    with closing(opened(context, DestinationKind.QUEUE, name="articles")) as sink:
        sink.write([gathered(5, {"n": 1}, {"n": 2})])

    with closing(context.broker.subscribe("records.p7.articles")) as subscription:
        found = subscription.take(10, timeout=5)
    assert [each.message_id for each in found] == ["5-0", "5-1"]
    assert json.loads(found[0].body) == {
        "request_id": "5",
        "position": 0,
        "of": 2,
        "biz": "news",
        "rule": "article",
        "url": "http://a.example/",
        "fetched_at": "2026-09-21T14:13:20.000Z",
        "meta": {},
        "record": {"n": 1},
    }


def test_a_queue_that_somebody_deleted_is_made_again(context: SinkContext) -> None:
    sink = opened(context, DestinationKind.QUEUE)
    sink.write([gathered(1, {"n": 1})])
    context.broker.delete("records.p7.news")
    with pytest.raises(SinkUnavailable, match=r"records\.p7\.news"):
        sink.write([gathered(2, {"n": 2})])
    sink.write([gathered(2, {"n": 2})])
    assert [row["request_id"] for row in read_queue(context.broker)] == ["2"]


@pytest.mark.services
def test_consumers_of_a_queue_are_told_that_it_is_json(rabbit_vhost: str) -> None:
    with closing(connect(rabbit_vhost, name="test", timeout=10.0)) as broker:
        broker.declare(*topology.SHARED)
        sink = opened(SinkContext(broker, lambda: NOW), DestinationKind.QUEUE)
        assert sink.write([gathered(1, {"n": 1})]) == {}
    with closing(pika.BlockingConnection(pika.URLParameters(rabbit_vhost))) as connection:
        channel = connection.channel()
        _method, properties, body = channel.basic_get("records.p7.news", auto_ack=True)
        channel.queue_delete("records.p7.news")
    assert properties.content_type == "application/json"
    assert json.loads(body)["request_id"] == "1"


def test_names_that_no_table_can_have_are_refused() -> None:
    with pytest.raises(BadSetting, match="no name"):
        table_of(7, "news", Records(name="a b"))
    with pytest.raises(BadSetting, match="63"):
        table_of(7, "news", Records(name="a" * 60))
