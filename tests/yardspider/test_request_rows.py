"""Rows of ended requests: one for each, with what has come of it, and what makes it again."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from tests.yardspider.crawls import FAST, changed
from tests.yardspider.item_brokers import ItemCenter, ItemRun, item_run
from yardkit.items.requests import MAX_SAVED_BYTES, MAX_TRACEBACK_CHARACTERS
from yardkit.protocol import FailureKind, RunCounters
from yardspider import Request, Response, SeedSpider, Spider, saved_requests
from yardspider.engine import CrawlEngine
from yardspider.errors import RunFailed
from yardspider.saved_requests import read_saved, restored
from yardspider.seeds.memory import MemoryFrontier
from yardspider.testing import HeldBack, NoAnswer, Page, PageLike, Refusal, Skip

pytestmark = pytest.mark.covers("OB.3")


class Shop(Spider):
    """A list with two products, one of which its callback cannot read."""

    settings = changed(retry_delay_seconds=0.1)
    start_urls = ["http://shop/list"]

    def parse(self, response: Response) -> Iterator[Any]:
        for name in ("good", "bad", "gone", "flaky", "robots", "dead", "lost"):
            yield Request(f"http://shop/{name}", self.product, meta={"name": name})
        yield Request("http://shop/list")

    def product(self, response: Response) -> Iterator[Any]:
        yield {"name": response.meta["name"]}
        if response.meta["name"] == "bad":
            raise ValueError(f"no price in '{response.url}'")
        yield {"name": "more"}


class ShopSite:
    """Answers of the shop; ``flaky`` answers at the third time."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: Any) -> PageLike:
        match request.url.rpartition("/")[2]:
            case "gone":
                return Page(404, body="x" * 9)
            case "flaky":
                self.asked += 1
                return "page" if self.asked == 3 else Page(503)
            case "robots":
                return Refusal()
            case "dead":
                return NoAnswer(FailureKind.DNS, "no address of shop 17")
            case "lost":
                return Skip()
        return "page"


def rows_of(spider: type[Spider], pages: Any, **options: Any) -> dict[str, dict[str, Any]]:
    """Rows by the last part of their address; there is one for each ended request."""
    center = ItemCenter(pages)
    outcome = item_run(spider, center, keeps_requests=True, **options)
    assert outcome.state == "exited"
    assert len(center.rows) == outcome.counters.success + outcome.counters.failed
    rows = {row["url"].rpartition("/")[2]: row for row in center.rows}
    assert len(rows) == len(center.rows)
    return rows


def test_each_ended_request_has_a_row_with_what_came_of_it() -> None:
    rows = rows_of(Shop, ShopSite())
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "list": "success",
        "good": "success",
        "flaky": "success",
        "bad": "failed",
        "gone": "failed",
        "dead": "failed",
        "lost": "failed",
        "robots": "refused",
    }
    parent = rows["list"]["id"]
    assert "parent" not in rows["list"]
    assert {row["parent"] for name, row in rows.items() if name != "list"} == {parent}
    assert {row["depth"] for name, row in rows.items() if name != "list"} == {1}
    good = rows["good"]
    assert (good["status"], good["items"], good["bytes"], good["attempts"]) == (200, 2, 4, 1)
    assert (good["callback"], good["method"], good["host"]) == ("product", "GET", "shop")
    assert good["agent"]
    assert not {"error", "request", "traceback", "kind"} & good.keys()
    assert rows["flaky"]["attempts"] == 3
    kinds = {name: row.get("kind") for name, row in rows.items() if row["outcome"] != "success"}
    assert kinds == {
        "bad": "callback",
        "gone": "http",
        "dead": "dns",
        "lost": "lost",
        "robots": "robots",
    }
    assert (rows["gone"]["status"], rows["gone"]["bytes"]) == (404, 9)
    assert rows["gone"]["group"] == "HTTP 404"
    assert rows["dead"]["group"] == "dns: no address of shop …"


def test_a_failed_callback_leaves_its_traceback_and_a_group_without_values() -> None:
    row = rows_of(Shop, ShopSite())["bad"]
    assert row["items"] == 1
    assert "raise ValueError" in row["traceback"]
    assert row["traceback"].rstrip().endswith("ValueError: no price in 'http://shop/bad'")
    assert row["group"].startswith("ValueError: no price in … (test_request_rows.py:")
    assert " product" in row["group"]

    class Deep(Spider):
        settings = FAST
        start_urls = ["http://shop/deep"]

        def parse(self, response: Response) -> Any:
            raise ValueError("x" * 10_000)

    center = ItemCenter(lambda request: "page")
    item_run(Deep, center, keeps_requests=True)
    assert len(center.rows[0]["traceback"]) == MAX_TRACEBACK_CHARACTERS + 1
    assert center.rows[0]["traceback"].rstrip().endswith("x")


class Saving(Spider):
    """Requests that can be saved, and those that cannot."""

    settings = FAST

    def start(self) -> Iterator[Request]:
        yield Request(
            "http://shop/good",
            "second",
            method="POST",
            headers=[(b"Cookie", b"a=\xe9")],
            body=b"\xff\x00",
            meta={"page": 2, "tags": ["a"]},
            priority=3,
            timeout_seconds=7.0,
        )
        yield Request("http://shop/large", meta={"text": "x" * MAX_SAVED_BYTES})
        yield Request("http://shop/tuple", meta={"pair": (1, 2)})
        yield Request("http://shop/object", meta={"spider": self})
        yield Request("http://shop/date", meta={"day": date(2026, 1, 1)})
        yield Request("http://shop/lambda", lambda response: None)

    def second(self, response: Response) -> None:
        pass


def test_a_failed_request_is_saved_or_says_why_not() -> None:
    center = ItemCenter(lambda request: Page(404))
    outcome = item_run(Saving, center, keeps_requests=True)
    assert outcome.state == "failed"
    rows = {row["url"].rpartition("/")[2]: row for row in center.rows}
    assert rows.pop("good")["request"] == {
        "url": "http://shop/good",
        "callback": "second",
        "method": "POST",
        "headers": [["Cookie", "a=é"]],
        "body": base64.b64encode(b"\xff\x00").decode(),
        "priority": 3,
        "meta": {"page": 2, "tags": ["a"]},
        "depth": 0,
        "timeout_seconds": 7.0,
    }
    assert not any("request" in row for row in rows.values())
    reasons = {name: row["not_saved"] for name, row in rows.items()}
    assert reasons.pop("object").startswith("not writable as JSON: ")
    assert reasons == {
        "large": f"larger than {MAX_SAVED_BYTES} bytes",
        "tuple": "meta has values that JSON cannot hold",
        "date": "meta has values that JSON cannot hold",
        "lambda": "its callback <lambda> is no method of the spider",
    }


def test_requests_of_seeds_are_opened_again_with_their_seed() -> None:
    class Seeds(SeedSpider):
        settings = changed(empty_seconds=0.1)

        def requests(self, seed: Any) -> Iterator[Request]:
            yield Request(f"http://shop/{seed.data}")

    center = ItemCenter({"http://shop/a": "page"})
    item_run(Seeds, center, frontier=MemoryFrontier(["a", "b"]), keeps_requests=True)
    # The frontier hands out a failed seed two times more.
    assert sorted(row["outcome"] for row in center.rows) == ["failed"] * 3 + ["success"]
    failed = [row for row in center.rows if row["outcome"] == "failed"]
    assert {row["not_saved"] for row in failed} == {"it belongs to a seed: open the seed again"}


def test_rows_are_sent_before_the_counters_that_count_them() -> None:
    class Watching(ItemCenter):
        async def report(self, counters: RunCounters) -> None:
            assert len(self.rows) >= counters.success + counters.failed
            await super().report(counters)

    class Slow(Spider):
        settings = changed(speed=50, concurrency=20)
        start_urls = [f"http://shop/{number}" for number in range(300)]

        async def parse(self, response: Response) -> Any:
            return {"url": response.url}

    center = Watching(lambda request: HeldBack(0.5, "page"), seconds=0.3)
    outcome = item_run(Slow, center, keeps_requests=True)
    assert outcome.counters.success == len(center.rows) == 300
    assert len(center.reports) > 3


@pytest.mark.covers("OB.4")
def test_a_saved_request_is_made_again_as_it_was(tmp_path: Path) -> None:
    center = ItemCenter(lambda request: Page(404))
    item_run(Saving, center, keeps_requests=True)
    rows = [row["request"] for row in center.rows if "request" in row]
    file = tmp_path / "requests"
    file.write_bytes(zstandard.compress(b"\n".join(map(msgspec.json.encode, rows))))
    saved = list(read_saved(file.as_uri()))
    again = ItemCenter(lambda request: "page")

    async def crawl() -> str:
        run = ItemRun(Saving(), again, keeps_requests=True)
        run.engine = CrawlEngine(
            Saving(), FAST, again, run.sink, clock=again.clock, start=lambda: map(restored, saved)
        )
        return (await run.engine.run()).state

    assert asyncio.run(crawl()) == "exited"
    first = [request for request in center.requests if request.url == "http://shop/good"]
    assert again.requests == first
    assert [(row["callback"], row["outcome"]) for row in again.rows] == [("second", "success")]


def test_requests_that_cannot_be_read_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_requests, "_TRIES", 1)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(RunFailed, match="cannot be read"):
        read_saved((tmp_path / "missing").as_uri())
