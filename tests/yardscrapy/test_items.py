"""Items of every class as plain data."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import scrapy

from yardkit.items.batches import encode_line
from yardscrapy.items import add_item, convert, plain_item
from yardspider.accounting import CrawlAccounting
from yardspider.outputs import ItemList

pytestmark = pytest.mark.covers("SC.1")


class Thing(scrapy.Item):
    name = scrapy.Field(serializer=str.upper)
    inner = scrapy.Field()


@dataclasses.dataclass
class Price:
    amount: Decimal
    day: date


def as_json(item: Any) -> Any:
    return json.loads(encode_line("", plain_item(item)))[1]


def test_values_that_are_no_json() -> None:
    at = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    item = {
        "at": at,
        "day": at.date(),
        "price": Decimal("1.10"),
        "bytes": "é".encode(),
        "binary": b"\xff\xfe",
        "path": Path("a/b"),
        "address": ip_address("127.0.0.1"),
        "id": UUID(int=1),
        "set": {1},
        "tuple": (1, b"x"),
        "_type": "Kept",
        5: {b"key": None},
    }
    assert as_json(item) == {
        "at": "2026-03-01T12:30:00Z",
        "day": "2026-03-01",
        "price": "1.10",
        "bytes": "é",
        "binary": "//4=",
        "path": "a/b",
        "address": "127.0.0.1",
        "id": "00000000-0000-0000-0000-000000000001",
        "set": [1],
        "tuple": [1, "x"],
        "_type": "Kept",
        "5": {"key": None},
    }


def test_serializers_apply_to_the_fields_of_the_item_itself_as_in_feed_exports() -> None:
    thing = Thing(name="a", inner=[Price(Decimal(2), date(2026, 1, 2)), Thing(name="b")])
    assert as_json(thing) == {
        "name": "A",
        "inner": [{"amount": "2", "day": "2026-01-02"}, {"name": "b"}],
    }


def test_later_changes_of_the_project_do_not_reach_the_stored_item() -> None:
    item = {"list": [{"a": 1}]}
    values, problem = convert(item)
    item["list"][0]["a"] = 2
    assert (values, problem) == ({"list": [{"a": 1}]}, "")


def test_what_cannot_be_written_is_dropped_with_its_reason() -> None:
    accounting, sink = CrawlAccounting(), ItemList()
    values, _ = convert({"bad": object()})
    add_item(sink, accounting, values, "http://a/")
    add_item(sink, accounting, {"good": 1}, "http://a/")
    assert (accounting.items, sink.items) == (2, [{"good": 1}])
    (reason,) = accounting.dropped
    assert "'bad'" in reason


def test_a_serializer_that_fails_and_an_item_that_contains_itself() -> None:
    assert "TypeError" in convert(Thing(name=5))[1]
    endless: dict[str, Any] = {}
    endless["self"] = endless
    assert "nested deeper" in convert(endless)[1]


def test_files_of_media_pipelines_become_links_where_the_run_keeps_them() -> None:
    stored = {"url": "u", "path": "full/a.png", "checksum": "c", "status": "downloaded"}
    item = {"files": [stored], "other": {"path": "full/a.png"}}
    linked = plain_item(item, keeps_files=True)
    assert linked["files"][0]["path"] == "crawlyard-file:full/a.png"
    assert linked["other"] == {"path": "full/a.png"}
    assert plain_item(item) == item
