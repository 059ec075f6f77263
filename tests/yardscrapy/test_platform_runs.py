"""Unchanged projects as runs: the same items as plain Scrapy, exact accounting, lifecycle."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.yardscrapy.market_site import PHOTO, MarketSite, market_site
from tests.yardscrapy.runs import Reported, Watcher, crawl, key, started, version_of
from tests.yardscrapy.scrapy_platform import ScrapyPlatform
from yardkit.protocol import RunAction, RunCounters

pytestmark = pytest.mark.slow("starts a center and agents")

TOPIC = "job.1.1"


@pytest.fixture(scope="module")
def watcher(platform: ScrapyPlatform) -> Iterator[Watcher]:
    found = Watcher(platform)
    yield found
    found.close()


@pytest.fixture
def site() -> Iterator[MarketSite]:
    with market_site() as served:
        yield served


def assert_accounted(counters: RunCounters) -> None:
    """Both equations hold at every report."""
    left = counters.queued + counters.in_flight
    assert counters.total == counters.success + counters.failed + left, counters
    ended = counters.returned + counters.skipped + counters.timed_out + counters.refused
    attempts = counters.sent + counters.retried
    assert attempts == ended + counters.cancelled + counters.out, counters


def assert_same(plain: list[dict[str, object]], reported: Reported, *, final: RunCounters) -> None:
    assert sorted(map(key, reported.items)) == sorted(map(key, plain))
    for counters in reported.counters:
        assert_accounted(counters)
    assert final.final
    assert final.items - sum(final.dropped.values()) == len(plain)


def plain_items(python: str, folder: Path, *words: str) -> list[dict[str, object]]:
    items = folder / "plain.jsonl"
    done = crawl(python, *words, "-o", f"{items}:jsonlines")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in items.read_text().splitlines()]


@pytest.mark.covers("SC.1", "SC.3")
@pytest.mark.parametrize("spider", ["visits", "walk", "map", "old", "new"])
def test_items_equal_those_of_plain_scrapy(
    platform: ScrapyPlatform, watcher: Watcher, python: str, tmp_path: Path, spider: str
) -> None:
    version = version_of(python)
    if spider == "old" and version >= (2, 16):
        pytest.skip("start_requests() is not called from Scrapy 2.16 on")
    if spider == "new" and version < (2, 13):
        pytest.skip("start() is called from Scrapy 2.13 on")
    with market_site() as site:
        words = [spider, "-a", f"site={site.url}"]
        plain = plain_items(python, tmp_path, *words)
        once = dict(site.asked)
        site.asked.clear()
        with started(platform, tmp_path / "run", python, *words) as run:
            status, left, log = run.end()
        assert dict(site.asked) == once
    assert (status, left["state"]) == (0, "exited"), log
    reported = watcher.of(run.run)
    assert_same(plain, reported, final=reported.last)
    assert left["scrapy"]["finish_reason"] == "finished"
    assert reported.last.stats["finish_reason"] == "finished"


@pytest.mark.covers("SC.1")
def test_a_crawl_without_a_reactor_runs_and_ends_at_a_signal(
    platform: ScrapyPlatform, watcher: Watcher, python: str, tmp_path: Path, site: MarketSite
) -> None:
    if version_of(python) < (2, 15):
        pytest.skip("Scrapy needs a reactor before 2.15")
    # Plain Scrapy has a reactor here: its handlers for none need packages of their own.
    plain = plain_items(python, tmp_path, "new", "-a", f"site={site.url}")
    words = ["-a", f"site={site.url}", "-s", "TWISTED_REACTOR_ENABLED=0"]
    with started(platform, tmp_path / "run", python, "new", *words) as run:
        status, left, log = run.end()
    assert (status, left["state"]) == (0, "exited"), log
    reported = watcher.of(run.run)
    assert_same(plain, reported, final=reported.last)
    site.asked.clear()
    with started(platform, tmp_path / "stopped", python, "slow", *words, "-a", "pages=2000") as run:
        until = time.monotonic() + 40
        while site.asked.total() < 5 and time.monotonic() < until:
            time.sleep(0.05)
        run.process.send_signal(signal.SIGTERM)
        status, left, log = run.end(15.0)
    assert (status, left["state"], left["reason"]) == (143, "stopped", "SIGTERM"), log
    assert_accounted(watcher.of(run.run).last)


@pytest.mark.covers("SC.1", "SC.6", "OB.3")
def test_each_request_and_item_has_one_outcome(
    platform: ScrapyPlatform, watcher: Watcher, python: str, tmp_path: Path, site: MarketSite
) -> None:
    arguments = json.dumps({"site": site.url, "level": 7})
    with started(
        platform, tmp_path / "run", python, "visits", CRAWLYARD_ARGUMENTS=arguments
    ) as run:
        status, left, log = run.end()
    assert status == 0, log
    last = watcher.of(run.run).last
    # Failed: /gone without a handler, /gone?errback, the closed port, the broken callback.
    assert (last.success, last.failed, last.queued, last.in_flight) == (6, 4, 0, 0)
    assert last.pages == 6
    assert {note["url"].removeprefix(site.url) for note in left["failures"]} == {
        "/gone",
        "/gone?errback",
        "http://127.0.0.1:9/closed",
        "/broken",
    }
    reasons = {note["url"].rpartition("/")[2]: note["reason"] for note in left["failures"]}
    assert reasons["gone"] == "HTTP 404"
    assert reasons["broken"] == "ValueError: a bug of the spider"
    assert last.dropped == {"no price": 1, "an exception in an item pipeline: KeyError: 'price'": 1}
    # Two kinds of the path's attempts: /flaky took three.
    assert site.asked["/flaky"] == 3
    assert_rows(watcher.of(run.run).requests, last)


def assert_rows(requests: list[dict[str, Any]], last: RunCounters) -> None:
    """One row for each ended request, with what has come of it."""
    assert len(requests) == last.success + last.failed
    rows = {row["url"].rpartition("/")[2]: row for row in requests}
    login = rows["login"]
    # Two items of the page are dropped by pipelines.
    assert (login["outcome"], login["items"], login["status"]) == ("success", 2, 200)
    assert "parent" not in login
    assert rows["flaky"]["attempts"] == 3
    assert {rows[name]["parent"] for name in ("flaky", "gone", "broken")} == {login["id"]}
    assert {rows[name]["callback"] for name in ("flaky", "gone")} == {"page"}
    broken = rows["broken"]
    assert (broken["kind"], broken["items"]) == ("callback", 1)
    assert broken["group"].startswith("ValueError: a bug of the spider (visits.py:")
    assert "raise ValueError" in broken["traceback"]
    assert (rows["gone"]["kind"], rows["gone"]["group"]) == ("http", "HTTP 404")
    assert (rows["closed"]["kind"], rows["closed"]["attempts"]) == ("refused", 3)
    saved = rows["gone?errback"]["request"]
    assert (saved["callback"], saved["errback"], saved["method"]) == ("page", "failed", "GET")
    assert not any(name.startswith("crawlyard") for name in saved["meta"])
    assert "request" not in login


@pytest.mark.covers("SC.1")
def test_the_log_has_level_and_time_whatever_the_projects_format_is(
    platform: ScrapyPlatform, python: str, tmp_path: Path, site: MarketSite
) -> None:
    words = ["visits", "-a", f"site={site.url}"]
    with started(platform, tmp_path / "run", python, *words) as run:
        _, _, log = run.end()
    lines = log.splitlines()
    closed = next(line for line in lines if "Spider closed" in line)
    assert closed[19:].startswith(".")
    assert closed[23:].startswith("Z INFO scrapy.core.engine: Spider closed (finished)")
    error = next(n for n, line in enumerate(lines) if "ValueError: a bug" in line)
    # A traceback is indented, so no line of it can pass for a record.
    assert lines[error].startswith("    ValueError")
    assert not any(line.startswith("<") for line in lines)
    assert any(" DEBUG scrapy.core.engine: Crawled (200)" in line for line in lines)


@pytest.mark.covers("DS.12", "SC.1")
def test_files_of_a_pipeline_are_kept_with_the_run(
    platform: ScrapyPlatform, watcher: Watcher, python: str, tmp_path: Path, site: MarketSite
) -> None:
    words = ["media", "-a", f"site={site.url}", "-s", "FILES_STORE=crawlyard://"]
    with started(platform, tmp_path / "run", python, *words) as run:
        status, _, log = run.end()
    assert status == 0, log
    reported = watcher.of(run.run)
    ((name, content),) = reported.files.items()
    assert content == PHOTO
    (item,) = reported.items
    assert [file["path"] for file in item["files"]] == [f"crawlyard-file:{name}"]
    # The page and the photo; the other file is a 404.
    assert (reported.last.success, reported.last.failed) == (2, 1)


@pytest.mark.covers("SC.1")
def test_pause_resume_and_exit(
    platform: ScrapyPlatform, watcher: Watcher, python: str, tmp_path: Path, site: MarketSite
) -> None:
    words = ["slow", "-a", f"site={site.url}", "-a", "pages=2000"]
    with started(platform, tmp_path / "run", python, *words, CRAWLYARD_TOPIC=TOPIC) as run:
        until = time.monotonic() + 40
        while not site.asked and time.monotonic() < until:
            time.sleep(0.05)
        assert watcher.command(run.run, TOPIC, RunAction.PAUSE, 1).accepted
        before = site.asked.total()
        time.sleep(1.5)
        assert site.asked.total() <= before + 2
        assert watcher.command(run.run, TOPIC, RunAction.RESUME, 2).accepted
        until = time.monotonic() + 15
        while site.asked.total() < before + 20 and time.monotonic() < until:
            time.sleep(0.05)
        assert site.asked.total() >= before + 20
        begin = time.monotonic()
        assert watcher.command(run.run, TOPIC, RunAction.EXIT, 3).accepted
        status, left, log = run.end()
        assert time.monotonic() - begin < 10
    assert (status, left["state"], left["reason"]) == (143, "stopped", "exit message, a test"), log
    reported = watcher.of(run.run)
    for counters in reported.counters:
        assert_accounted(counters)
    assert reported.last.final
    assert len(reported.items) == reported.last.items


@pytest.mark.covers("SC.1", "SC.6")
def test_sigterm_ends_a_run_in_time(
    platform: ScrapyPlatform, watcher: Watcher, python: str, tmp_path: Path, site: MarketSite
) -> None:
    words = ["slow", "-a", f"site={site.url}", "-a", "pages=2000"]
    with started(platform, tmp_path / "run", python, *words) as run:
        until = time.monotonic() + 40
        while site.asked.total() < 5 and time.monotonic() < until:
            time.sleep(0.05)
        run.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        status, left, log = run.end()
        assert time.monotonic() - begin < 5
    assert (status, left["state"], left["reason"]) == (143, "stopped", "SIGTERM"), log
    assert_accounted(watcher.of(run.run).last)


@pytest.mark.covers("SC.3")
def test_a_job_directory_continues_where_the_run_was_stopped(
    platform: ScrapyPlatform, watcher: Watcher, python: str, tmp_path: Path, site: MarketSite
) -> None:
    words = ["slow", "-a", f"site={site.url}", "-a", "pages=60", "-s", f"JOBDIR={tmp_path / 'job'}"]
    items: list[str] = []
    for number in (1, 2):
        with started(platform, tmp_path / str(number), python, *words) as run:
            if number == 1:
                until = time.monotonic() + 40
                while site.asked.total() < 10 and time.monotonic() < until:
                    time.sleep(0.02)
                run.process.send_signal(signal.SIGTERM)
            status, left, log = run.end()
        assert status == (143 if number == 1 else 0), log
        items += [str(item["url"]) for item in watcher.of(run.run).items]
    assert len(set(items)) > 20
    assert left["state"] == "exited"
