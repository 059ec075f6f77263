"""Fields of items that have a value, counted without a word in the spider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.yardspider.crawls import FAST, run
from yardkit.protocol import decode, encode
from yardspider import Response, Spider
from yardspider.coverage import MOST_FIELDS, FieldCoverage


def count(*items: dict[Any, Any]) -> dict[str, int]:
    coverage = FieldCoverage()
    for item in items:
        coverage.add(item)
    return coverage.counts()


def test_a_run_reports_in_how_many_items_each_field_had_a_value() -> None:
    class Shop(Spider):
        settings = FAST
        start_urls = [f"http://h/{number}" for number in range(10)]

        def parse(self, response: Response) -> Iterator[Any]:
            number = int(response.url.rsplit("/", 1)[1])
            yield {
                "url": response.url,
                "价格": None if number < 4 else number,
                "seller": {"name": "Ann", "phone": "" if number else "555"},
            }

    result = run(Shop, {f"http://h/{number}": "" for number in range(10)})
    assert result.counters.items == 10
    assert result.counters.fields == {
        "url": 10,
        "价格": 6,
        "seller": 10,
        "seller.name": 10,
        "seller.phone": 1,
    }
    assert decode(encode(result.counters)) == result.counters


def test_nothing_is_no_value_and_zero_is_one() -> None:
    item: dict[str, Any] = {
        "none": None,
        "text": "",
        "list": [],
        "dict": {},
        "zero": 0,
        "no": False,
        "nil": 0.0,
    }
    assert count(item) == {"zero": 1, "no": 1, "nil": 1}


def test_only_the_first_names_are_counted() -> None:
    counts = count(*({f"day-{day}": 1, "url": "u"} for day in range(1000)))
    assert len(counts) == MOST_FIELDS
    assert counts["url"] == 1000
    inner = count(*({"prices": {f"day-{day}": 1}} for day in range(1000)))
    assert len(inner) == MOST_FIELDS
    assert inner["prices"] == 1000


def test_names_that_no_message_holds_are_left_out() -> None:
    item: dict[Any, Any] = {
        7: "seven",
        "": "empty",
        "a\0b": "nul",
        "\ud800": "half",
        "x" * 101: "long",
        "ok": 1,
    }
    assert count(item) == {"ok": 1}


def test_a_value_that_cannot_be_asked_is_one() -> None:
    class Array:
        def __bool__(self) -> bool:
            raise ValueError("the truth value is ambiguous")

    assert count({"array": Array(), "inner": {"array": Array()}}) == {
        "array": 1,
        "inner": 1,
        "inner.array": 1,
    }
