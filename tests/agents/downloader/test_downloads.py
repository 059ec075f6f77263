"""An agent on a real broker with a real web server: what comes of its downloads."""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from pathlib import Path

import pytest

from apps.agents.downloader.fetchers.options import FetchOptions
from apps.agents.downloader.fetchers.redial import RedialOptions
from apps.agents.downloader.results import make_result
from tests.agents.downloader.agent_peer import AgentPeer, Unreliable, until
from tests.agents.downloader.conftest import Start
from tests.agents.downloader.gate import Gate
from tests.yardkit.web_server import WebServer, page
from yardkit.broker import Broker
from yardkit.clock import ManualClock
from yardkit.fetched import Fetched
from yardkit.protocol import (
    MAX_CONTENT_BYTES,
    MAX_MESSAGE_BYTES,
    DownloadResults,
    DownloadsHeld,
    FailureKind,
    encode,
)


@pytest.mark.covers("S1.23")
async def test_download(start: Start, other: AgentPeer, site: WebServer) -> None:
    running = start()
    site.answers |= {f"/{number}": page(b"page %d" % number) for number in range(100)}
    await other.allocate(user_agent="Yard/1")
    other.download([site.url(f"/{number}") for number in range(100)])
    results = await other.results(100)
    assert {number: result.body for number, result in results.items()} == {
        number: b"page %d" % number for number in range(100)
    }
    assert {result.status for result in results.values()} == {200}
    assert site.seen[0].headers["user-agent"] == "Yard/1"
    await until(lambda: running.agent.counters.finished == 100)
    await other.emptied()
    assert len(site.seen) == 100, "no page twice"


async def test_answers_travel_in_batches(start: Start, broker: Broker, other: AgentPeer) -> None:
    unreliable = Unreliable(broker)
    start(broker=unreliable)
    await other.allocate()
    other.download(["http://10.0.0.1/"] * 100)
    results = await other.results(100)
    assert {result.failure for result in results.values()} == {FailureKind.ADDRESS_REFUSED}
    sent = [one for one in unreliable.published if one.key == other.answers.name]
    assert len(sent) <= 1 + 100 // 10


async def test_failures_are_answers(start: Start, other: AgentPeer, site: WebServer) -> None:
    start()
    site.answers["/gate"] = Gate()
    await other.allocate(timeout_seconds=0.1)
    other.download(["ftp://nowhere", "http://10.0.0.1/", site.url("/gate"), site.url("/missing")])
    results = await other.results(4)
    assert [(results[number].failure, results[number].status) for number in range(4)] == [
        (FailureKind.BAD_REQUEST, 0),
        (FailureKind.ADDRESS_REFUSED, 0),
        (FailureKind.TIMEOUT, 0),
        (FailureKind.NONE, 404),
    ]
    await other.emptied()


async def test_large_bodies_are_compressed(start: Start, other: AgentPeer, site: WebServer) -> None:
    start()
    body = b"crawl the page " * 200_000
    site.answers |= {"/large": page(body), "/small": page(b"x" * 1_000_000)}
    await other.allocate(max_body_bytes=2_000_000)
    other.download([site.url("/large"), site.url("/small")])
    results = await other.results(2)
    large, small = results[0], results[1]
    assert (large.compressed, large.truncated) == (True, True)
    assert len(large.body) < 100_000
    assert zlib.decompress(large.body) == body[:2_000_000]
    assert (small.compressed, len(small.body)) == (False, 1_000_000)


async def test_concurrency_is_kept(start: Start, other: AgentPeer, site: WebServer) -> None:
    start()
    gate = site.answers["/gate"] = Gate()
    await other.allocate(concurrency=3)
    other.download([site.url("/gate")] * 20)
    await until(lambda: gate.waiting == 3)
    await asyncio.sleep(0.05)
    assert gate.waiting == 3
    gate.opened.set()
    await other.results(20)


@pytest.mark.covers("S1.25")
async def test_runs_are_isolated(
    start: Start, broker: Broker, other: AgentPeer, site: WebServer
) -> None:
    start()
    site.answers["/login"] = page(b"", headers={"Set-Cookie": "session=7; Path=/"})
    stranger = AgentPeer(broker, run=8)
    await other.allocate()
    await stranger.allocate(cookies={"own": "8"})
    other.download([site.url("/login")])
    await other.results(1)
    other.download([site.url("/seven")])
    stranger.download([site.url("/eight")])
    await other.results(1)
    await stranger.results(1)
    cookies = {seen.path: seen.headers.get("cookie") for seen in site.seen}
    assert cookies == {"/login": None, "/seven": "session=7", "/eight": "own=8"}


@pytest.mark.covers("S1.32")
async def test_a_run_without_downloader_gets_an_answer(start: Start, other: AgentPeer) -> None:
    running = start()
    other.download(["http://a.example/", "http://b.example/"])
    results = await other.results(2)
    assert {result.failure for result in results.values()} == {FailureKind.DOWNLOADER_MISSING}
    assert running.agent.counters.missing == 2
    await other.emptied()


@pytest.mark.covers("S1.32", "S1.46")
async def test_old_commands_are_dropped(start: Start, other: AgentPeer, site: WebServer) -> None:
    clock = ManualClock()
    clock.jump(time.time() - clock.time())
    running = start(clock=clock)
    await other.allocate()
    other.download([site.url("/old")] * 3, dispatched_at=clock.time() - 61)
    other.download([site.url("/new")], dispatched_at=clock.time() - 59)
    assert (await other.results(1))[0].status == 404
    await until(lambda: running.agent.counters.expired == 3)
    await other.emptied()
    assert site.paths() == ["/new"]


@pytest.mark.covers("S1.32")
async def test_a_request_may_grow_old_while_it_waits(
    start: Start, other: AgentPeer, site: WebServer
) -> None:
    clock = ManualClock()
    clock.jump(time.time() - clock.time())
    running = start(clock=clock)
    gate = site.answers["/gate"] = Gate()
    await other.allocate(concurrency=1)
    other.download([site.url("/gate"), site.url("/late"), site.url("/late")])
    await until(lambda: gate.waiting)
    clock.advance(61)
    gate.opened.set()
    await other.results(1)
    await until(lambda: running.agent.counters.expired == 2)
    await other.emptied()
    assert site.paths() == ["/gate"]


@pytest.mark.slow("4 s")
async def test_a_request_that_waits_for_a_redial_is_held_and_its_copies_are_merged(
    start: Start, other: AgentPeer, site: WebServer, tmp_path: Path
) -> None:
    site.answers["/banned"] = page(b"go away")
    lock = tmp_path / "redial.lock"
    # The last redial was just now, so that the interval is waited out.
    lock.write_text(f"{time.time():020.3f} {'failed':>6}\n")
    redial = RedialOptions(("true",), lock, interval_seconds=4.0)
    running = start(fetching=FetchOptions(redial=redial))
    await other.allocate(redial=True, switch_pattern="go away", switch_retries=1)
    other.download([site.url("/banned")])
    held = await other.receive(DownloadsHeld)
    assert held.items == [(0, 1)]
    assert held.wait_seconds > 60.0
    for attempt in (2, 3):
        other.download([site.url("/banned")], attempt=attempt)
    assert len(site.seen) == 1
    message = await other.receive(DownloadResults)
    assert [(one.id, one.attempt, one.failure) for one in message.items] == [
        (0, 3, FailureKind.BANNED)
    ]
    assert len(site.seen) == 2, "once on either address"
    await other.emptied()
    assert other.arrived(DownloadResults) == []
    assert running.agent.counters.finished == 1


@pytest.mark.slow("3 s")
async def test_a_page_that_no_message_holds_is_refused_with_the_reason() -> None:
    noise = random.Random(7).randbytes(MAX_CONTENT_BYTES + 1)

    def fetched(body: bytes) -> Fetched:
        return Fetched("http://h/", 200, [], body, FailureKind.NONE, "", 1.0, False)

    refused = await make_result(1, 1, fetched(noise), 1)
    assert (refused.failure, refused.body) == (FailureKind.BAD_CONTENT, b"")
    assert "lower the job's largest body" in refused.error
    # The default of a job, even where nothing can be compressed, and far more where it can.
    for body in (noise[: 8 * 1024 * 1024], noise[: MAX_CONTENT_BYTES - 65_536], bytes(2**26)):
        result = await make_result(1, 1, fetched(body), 1)
        assert result.failure is FailureKind.NONE
        message = DownloadResults(run=1, agent="a", items=[result])
        assert len(encode(message)) < MAX_MESSAGE_BYTES
