"""The engine and the spider's own code: it decides, and it errs; in virtual time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.yardspider.crawls import Follow, One, run
from yardspider import Request, Response, Spider
from yardspider.accounting import CrawlAccounting, Depths
from yardspider.testing import PageLike


@pytest.mark.covers("S1.51")
def test_the_spider_decides_what_success_is() -> None:
    class Deciding(Follow):
        def parse(self, response: Response) -> Iterator[Any]:
            time.sleep(0.002)
            yield from super().parse(response)

        def is_success(self, response: Response) -> bool:
            if response.url.endswith("broken"):
                raise KeyError("oops")
            return response.status == 404 or response.text != "ban"

    pages: dict[str, PageLike] = {
        "http://h/": "<a href=gone><a href=banned><a href=broken>",
        "http://h/banned": "ban",
        "http://h/broken": "",
    }
    result = run(Deciding, pages)
    assert (result.counters.success, result.counters.failed) == (2, 2)
    reasons = sorted(note.reason for note in result.failures)
    assert reasons[0] == "HTTP 200, refused by is_success"
    assert reasons[1].startswith("is_success raised KeyError: 'oops' (test_engine_callbacks.py:")
    assert result.counters.pages == 3
    # By agent: how many, how many of those were no success, how long they took.
    counters = result.counters
    assert counters.agents == {"fake": 4}
    assert counters.agent_failed == {"fake": 2}
    assert counters.callback_ms >= 4
    accounting = CrawlAccounting()
    accounting.take_answer("a", 12.4, success=True)
    accounting.take_answer("a", 30.4, success=False)
    told = accounting.snapshot(run=1, incarnation="b", seq=1, depths=Depths(), failures=[])
    assert (told.agents, told.agent_failed, told.agent_ms) == ({"a": 2}, {"a": 1}, {"a": 43})


class Raises(Follow):
    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        if response.url.endswith("bad"):
            raise ValueError("no\nprice")
        yield from super().parse(response)


def test_a_callback_that_raises_fails_its_request_only(caplog: pytest.LogCaptureFixture) -> None:
    pages = {"http://h/": "<a href=bad><a href=good>", "http://h/bad": "", "http://h/good": ""}
    result = run(Raises, pages)
    assert result.outcome.state == "exited"
    assert (result.counters.success, result.counters.failed) == (2, 1)
    assert {"url": "http://h/bad"} in result.items
    note = result.failures[0]
    assert (note.url, note.status) == ("http://h/bad", 200)
    assert note.reason.startswith(
        "callback parse raised ValueError: no price (test_engine_callbacks.py:"
    )
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert "http://h/bad" in lines[0]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (3, "callback parse raised TypeError: returned int, not requests, seeds or dicts"),
        ("text", "callback parse raised TypeError: returned str, not requests, seeds or dicts"),
        ([3], "callback parse raised TypeError: yielded int, not a Request, a Seed or a dict"),
        (
            [None],
            "callback parse raised TypeError: yielded NoneType, not a Request, a Seed or a dict",
        ),
        (
            [Request("http://h/x", "parze")],
            "callback parse raised BadInput: Wrong has no callback 'parze'",
        ),
    ],
)
def test_a_callback_that_yields_nonsense_fails_its_request(result: Any, reason: str) -> None:
    class Wrong(One):
        def parse(self, response: Response) -> Any:
            return result

    class WrongLater(Wrong):
        async def parse(self, response: Response) -> Any:
            return result

    for spider in (Wrong, WrongLater):
        done = run(spider, {"http://h/": ""})
        assert done.outcome.state == "failed"
        expected = reason.replace("Wrong has", f"{spider.__name__} has")
        assert done.failures[0].reason.startswith(expected)
        assert done.outcome.reason.startswith("no page could be used: callback parse raised")


def test_a_callback_that_exits_fails_its_request() -> None:
    class Exits(One):
        def parse(self, response: Response) -> Any:
            raise SystemExit(3)

    assert (
        run(Exits, {"http://h/": ""})
        .failures[0]
        .reason.startswith("callback parse raised SystemExit: 3 ")
    )


@pytest.mark.parametrize("kind", ["plain", "generator", "coroutine", "bad url"])
def test_a_start_that_raises_fails_the_run(kind: str) -> None:
    class Plain(Spider):
        def start(self) -> Any:
            raise OSError("no file")

    class Generator(Spider):
        def start(self) -> Any:
            yield Request("http://h/")
            raise OSError("no file")

    class Coroutine(Spider):
        async def start(self) -> Any:
            raise OSError("no file")

    class BadUrl(Spider):
        start_urls = ["no file"]

    spiders = {"plain": Plain, "generator": Generator, "coroutine": Coroutine, "bad url": BadUrl}
    result = run(spiders[kind], {"http://h/": ""})
    assert result.outcome.state == "failed"
    assert result.outcome.reason.startswith("start raised ")
    assert "no file" in result.outcome.reason
    assert ".py:" in result.outcome.reason
