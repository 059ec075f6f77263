"""What a fetcher makes of pages by the rules of a biz, without the rest of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from apps.requeststore.daemon import page_extractor
from apps.requeststore.daemon.page_extractor import ExtractionResult, PageExtractor
from apps.requeststore.daemon.work import DownloadedPage, LeasedRequest, RequestFailure
from apps.requeststore.engine.entity import Entity
from apps.requeststore.engine.errors import BadSetting
from apps.requeststore.extraction.processes import ExtractionPool
from apps.requeststore.queues.base import TakenEntry
from apps.requeststore.stores.base import QueueEntry, StoredRequest

pytestmark = pytest.mark.covers("S4.5", "S4.20")
RULES: dict[str, Any] = {
    "slow": {"fields": {"v": "div div div::text"}},
    "page": {"fields": {"v": "h1"}, "follow": [{"css": "a::attr(href)", "rule": "page"}]},
}
NESTED = (b"<div>" * 240 + b"x" * 100 + b"</div>" * 240) * 300


@pytest.fixture(autouse=True)
def boxes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One that has less patience."""
    with ExtractionPool(1, cpu_seconds=0.5) as made:
        monkeypatch.setattr(page_extractor, "shared_extraction_pool", lambda: made)
        yield


def work(rule: str, **fields: Any) -> LeasedRequest:
    """A request that is in hand."""
    entity = Entity(url="https://shop.example/", rule=rule, **fields)
    entry = QueueEntry(1, "news", 1)
    request = StoredRequest(id=1, biz="news", ts=1, flag=-1, data=b"")
    return LeasedRequest(TakenEntry(entry, b""), request, entity, 0.0)


def answer(body: bytes, status: int = 200) -> DownloadedPage:
    return DownloadedPage("https://shop.example/", status, [("Content-Type", "text/html")], body)


@pytest.mark.slow("1 s")
def test_a_page_that_cannot_be_read_in_time_is_a_trouble_of_its_own() -> None:
    """And the pages after it are read."""
    reader = PageExtractor(RULES)
    slow = reader.read(work("slow"), answer(NESTED))
    assert slow == RequestFailure(
        "extraction: reading the page took more than 0.5 s of CPU time", status=200
    )
    read = reader.read(work("page", meta={"a": 1}), answer("<h1>中</h1><a href=/2>2</a>".encode()))
    assert isinstance(read, ExtractionResult)
    assert read.records == [{"v": "中"}]
    assert [(each.url, each.rule, each.depth, each.meta) for each in read.follow] == [
        ("https://shop.example/2", "page", 1, {"a": 1})
    ]


def test_a_chain_of_links_ends() -> None:
    read = PageExtractor(RULES).read(work("page", depth=1), answer(b"<a href=/2>2</a>"))
    assert isinstance(read, ExtractionResult)
    assert not read.follow


def test_rules_with_faults_are_no_rules() -> None:
    with pytest.raises(BadSetting) as caught:
        PageExtractor({"a": {"fields": {"b": {"css": "["}}}})
    assert "rules.a.fields.b.css" in str(caught.value)
