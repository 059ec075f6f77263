"""The connection of a crawl: what is lost, skipped, refused, paused and ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.yardspider.center import SmallCenter, small_center
from yardkit.protocol import (
    AnyMessage,
    DownloadBatch,
    DownloadRequest,
    DownloadResult,
    DownloadResults,
    DownloadsHeld,
    DownloadsRefused,
    FailureKind,
    Skipped,
)
from yardscrapy.client import ClientResult, DownloadClient
from yardspider.accounting import CrawlAccounting
from yardspider.environment import read_run
from yardspider.errors import RunFailed
from yardspider.settings import SpiderSettings

URL = "http://site.test/"


class Crawl:
    """A client and what its downloads ended as."""

    def __init__(self, client: DownloadClient) -> None:
        self.client = client
        self.ends: dict[str, ClientResult] = {}
        self.seen = threading.Condition()

    def fetch(self, path: str, **request: Any) -> None:
        def done(end: ClientResult) -> None:
            with self.seen:
                assert path not in self.ends, "a download ends once"
                self.ends[path] = end
                self.seen.notify_all()

        seconds = request.pop("seconds", None)
        self.client.submit(
            DownloadRequest(url=URL + path, **request),
            host="site.test",
            timeout_seconds=seconds,
            on_done=done,
        )

    def until(self, condition: Callable[[], object], seconds: float = 20) -> None:
        with self.seen:
            assert self.seen.wait_for(condition, seconds), self.ends

    def in_thread(self, work: Callable[[], Any]) -> Any:
        """Return what ``work`` returns in the client's thread."""
        found: list[Any] = []
        called = threading.Event()

        def call() -> None:
            found.append(work())
            called.set()

        self.client.call(call)
        assert called.wait(10)
        return found[0]

    def check(self) -> CrawlAccounting:
        """Every attempt has one end."""

        def look() -> Any:
            return self.client.accounting, self.client.depths()

        accounting, depths = self.in_thread(look)
        a = accounting
        assert a.sent + a.retried == (
            a.returned + a.skipped + a.timed_out + a.refused + a.cancelled + depths.out
        )
        return a


@pytest.fixture
def center(tmp_path: Path) -> Iterator[SmallCenter]:
    with small_center(f"sqlite:///{tmp_path}/broker.db", lambda url: "page") as center:
        yield center


@pytest.fixture
def crawl(center: SmallCenter, tmp_path: Path) -> Iterator[Crawl]:
    run = read_run(
        {
            "CRAWLYARD_RUN": "7",
            "CRAWLYARD_RUN_TOKEN": "r1.token",
            "CRAWLYARD_BOOT": "b1",
            "CRAWLYARD_AGENTS": "2",
            "BROKER_URL": f"sqlite:///{tmp_path}/broker.db",
        }
    )
    client = DownloadClient(run, run.downloader, SpiderSettings(request_timeout_seconds=30.0))
    client.start()
    crawl = Crawl(client)
    yield crawl
    client.close(5)
    center.wait_for(lambda: center.releases)


def attempts(center: SmallCenter) -> list[int]:
    return [item.attempt for item in center.items]


def test_downloads_end_with_the_answers_of_agents(center: SmallCenter, crawl: Crawl) -> None:
    for number in range(200):
        crawl.fetch(str(number))
    crawl.until(lambda: len(crawl.ends) == 200)
    assert {end.agent for end in crawl.ends.values()} == {"a1", "a2"}
    assert all(end.result is not None and end.result.body == b"page" for end in crawl.ends.values())
    accounting = crawl.check()
    assert (accounting.sent, accounting.returned, accounting.retried) == (200, 200, 0)
    assert len(center.batches) < 100, "requests travel in batches"


def test_a_lost_answer_is_asked_for_again_only_where_that_is_harmless(
    center: SmallCenter, crawl: Crawl
) -> None:
    center.on_batch = lambda batch: []
    crawl.fetch("get", seconds=0.3)
    crawl.fetch("post", method="POST", seconds=0.3)
    crawl.until(lambda: len(crawl.ends) == 2)
    assert [end.kind for end in crawl.ends.values()] == ["lost", "lost"]
    assert sorted(attempts(center)) == [1, 1, 2, 3]
    accounting = crawl.check()
    assert (accounting.timed_out, accounting.unanswered) == (4, 2)


def test_an_answer_that_comes_late_is_taken_and_the_other_a_duplicate(
    center: SmallCenter, crawl: Crawl
) -> None:
    late: list[DownloadBatch] = []

    def hold_back(batch: DownloadBatch) -> list[AnyMessage]:
        late.append(batch)
        if len(late) == 1:
            return []
        return [*center.download(late[0]), *center.download(batch)]

    center.on_batch = hold_back
    crawl.fetch("slow", seconds=0.3)
    crawl.until(lambda: crawl.ends)
    time.sleep(0.3)
    accounting = crawl.check()
    assert (accounting.returned, accounting.duplicates) == (1, 1)


def test_what_no_agent_takes_is_sent_again_whatever_its_method(
    center: SmallCenter, crawl: Crawl
) -> None:
    def skip_once(batch: DownloadBatch) -> list[AnyMessage]:
        if len(center.batches) == 1:
            items = [(item.id, item.attempt) for item in batch.items]
            return [Skipped(run=7, reason="no agent", items=items)]
        return center.download(batch)

    center.on_batch = skip_once
    crawl.fetch("post", method="POST")
    crawl.until(lambda: crawl.ends)
    assert crawl.ends["post"].result is not None
    assert crawl.check().skipped == 1


def test_a_refusal_of_the_center_is_that_of_robots_txt(center: SmallCenter, crawl: Crawl) -> None:
    center.on_batch = lambda batch: [
        DownloadsRefused(run=7, reason="robots.txt", items=[(i.id, i.attempt) for i in batch.items])
    ]
    crawl.fetch("private")
    crawl.until(lambda: crawl.ends)
    assert crawl.ends["private"].kind == "robots"
    assert crawl.check().refused == 1
    assert crawl.in_thread(crawl.client.failed) == {"robots": 1}


def test_time_at_the_center_does_not_count(center: SmallCenter, crawl: Crawl) -> None:
    center.on_batch = lambda batch: [
        DownloadsHeld(
            run=7,
            reason="polite",
            wait_seconds=30.0,
            items=[(item.id, item.attempt) for item in batch.items],
        )
    ]
    crawl.fetch("held", seconds=0.3)
    center.wait_for(lambda: center.batches)
    time.sleep(1.0)
    depths = crawl.in_thread(crawl.client.depths)
    assert (depths.out, depths.held, crawl.ends) == (1, 1, {})
    assert attempts(center) == [1]


def test_a_paused_crawl_sends_nothing_and_goes_on(center: SmallCenter, crawl: Crawl) -> None:
    crawl.fetch("before")
    crawl.until(lambda: crawl.ends)
    crawl.client.pause()
    crawl.fetch("meanwhile")
    time.sleep(0.6)
    assert len(center.items) == 1
    crawl.client.resume()
    crawl.until(lambda: len(crawl.ends) == 2)


def test_an_abort_ends_everything_at_once_and_what_comes(center: SmallCenter, crawl: Crawl) -> None:
    center.on_batch = lambda batch: []
    crawl.fetch("out")
    center.wait_for(lambda: center.batches)
    crawl.client.abort("exit message")
    crawl.until(lambda: crawl.ends)
    crawl.fetch("later")
    crawl.until(lambda: len(crawl.ends) == 2)
    assert {end.kind for end in crawl.ends.values()} == {"lost"}
    assert "exit message" in crawl.ends["out"].error
    assert crawl.check().cancelled == 1


def test_failures_of_agents_are_given_on_with_their_kind(center: SmallCenter, crawl: Crawl) -> None:
    def fail(batch: DownloadBatch) -> list[AnyMessage]:
        results = [
            DownloadResult(
                item.id, item.attempt, URL, 0, [], b"", FailureKind.DNS, "no such host", 3.0
            )
            for item in batch.items
        ]
        return [DownloadResults(run=7, agent="a1", items=results)]

    center.on_batch = fail
    crawl.fetch("gone")
    crawl.until(lambda: crawl.ends)
    assert (crawl.ends["gone"].kind, crawl.ends["gone"].error) == (FailureKind.DNS, "no such host")
    assert crawl.in_thread(crawl.client.failed) == {"dns": 1}


def test_without_agents_every_download_fails_and_the_owner_is_told(
    center: SmallCenter, crawl: Crawl
) -> None:
    """The fixture's client has allocated; another one finds no agent."""
    center.on_allocate = lambda message: []
    told: list[RunFailed] = []
    run = read_run(
        {
            "CRAWLYARD_RUN": "8",
            "CRAWLYARD_RUN_TOKEN": "r1.token",
            "BROKER_URL": crawl.client._run.broker_url,
        }
    )
    client = DownloadClient(run, run.downloader, SpiderSettings(allocate_seconds=0.5))
    client.on_failure = told.append
    other = Crawl(client)
    client.start()
    other.fetch("one")
    other.until(lambda: other.ends)
    assert other.ends["one"].kind == "lost"
    assert "is run_center running?" in other.ends["one"].error
    assert [str(error) for error in told] == [str(client.failure)]
    client.close(5)
