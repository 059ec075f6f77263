"""A run on the platform: the real command, a real broker, a center that does as told."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.yardspider.center import SmallCenter, small_center
from tests.yardspider.commands import Done, command, environment, run
from tests.yardspider.crawls import check_counters
from tests.yardspider.published_items import published_items
from yardkit import topology
from yardkit.broker import Broker, Outgoing, Unroutable, aio, connect
from yardkit.broker.base import DEAD_QUEUE
from yardkit.protocol import (
    Allocate,
    Allocated,
    AnyMessage,
    Dispatched,
    DownloadBatch,
    DownloaderReady,
    DownloadResult,
    DownloadResults,
    DownloadsHeld,
    DownloadsRefused,
    FailureKind,
    RequestItem,
    Skipped,
    decode_request,
    encode,
    encode_request,
)
from yardspider import Request, SpiderSettings
from yardspider.environment import read_run
from yardspider.errors import TransportLost
from yardspider.transports.remote import RemoteTransport

SITE = "yardspider.spiders:SiteSpider"


def tree(url: str) -> str:
    """60 pages, each of the first 20 linking to three more."""
    number = int("0" + url.rpartition("/")[2])
    if number >= 20:
        return "leaf"
    return "".join(f"<a href=/{number * 3 + n}>x</a>" for n in (1, 2, 3))


@pytest.fixture(params=["sqlite", pytest.param("rabbitmq", marks=pytest.mark.services)])
def broker_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/broker.db"
    url: str = request.getfixturevalue("rabbit_vhost")
    return url


@pytest.fixture
def center(broker_url: str) -> Iterator[SmallCenter]:
    with small_center(broker_url, tree) as small:
        yield small


def variables(broker_url: str, folder: Path, **extra: str) -> dict[str, str]:
    return {
        "CRAWLYARD_RUN": "7",
        "CRAWLYARD_RUN_TOKEN": "r1.token",
        "CRAWLYARD_BOOT": folder.name,
        "BROKER_URL": broker_url,
        "CRAWLYARD_AGENTS": "2",
        "CRAWLYARD_ARGUMENTS": json.dumps({"url": "http://site.test/"}),
        "CRAWLYARD_SETTINGS": json.dumps({"speed": 0}),
        "CRAWLYARD_RUN_DIR": str(folder),
        **extra,
    }


def crawl(broker_url: str, folder: Path, *arguments: str, **extra: str) -> Done:
    return run(folder, "run", SITE, *arguments, env=variables(broker_url, folder, **extra))


def logged(done: Done) -> list[str]:
    """Its lines without the times, and without what the job's ``speed`` overrides."""
    lines = [line.partition(" ")[2].partition(" ")[2] for line in done.errors.splitlines()]
    overridden = "INFO yardspider: settings overridden by the job: speed=0.0 (was 1.0)"
    return [line for line in lines if line != overridden]


def exit_state(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "exit.json").read_text())
    return content


# --- a whole run ------------------------------------------------------------------------------


@pytest.mark.covers("S1.34", "S1.35", "S1.36")
def test_a_run_through_center_and_agents(
    center: SmallCenter, broker_url: str, tmp_path: Path
) -> None:
    done = crawl(broker_url, tmp_path, CRAWLYARD_POLICY="fixed")
    assert (done.status, done.output) == (0, "")
    assert "settings overridden by the job: speed=0.0 (was 1.0)" in done.errors
    begins, ends = logged(done)
    assert begins == "INFO yardspider: SiteSpider starts"
    counts = "61 requests succeeded, 0 failed; 61 pages, 61 items"
    assert re.fullmatch(rf"INFO yardspider: ended after [\d.]+ s: {counts}", ends)
    allocate = center.allocates[0]
    assert (allocate.run, allocate.token, allocate.policy, allocate.agents) == (
        7,
        "r1.token",
        "fixed",
        2,
    )
    assert allocate.reply_to == topology.run_answers(7, tmp_path.name).name
    # The agent gives up before the run would send again, so that its reason arrives first.
    assert allocate.settings.timeout_seconds == 12.0
    assert len(center.items) == len({item.id for item in center.items}) == 61
    assert {item.host for item in center.items} == {"site.test"}
    assert max(len(batch.items) for batch in center.batches) <= 50
    assert {batch.token for batch in center.batches} == {"r1.token"}
    left = exit_state(tmp_path)
    assert (left["state"], left["total"], left["success"]) == ("exited", 61, 61)
    assert sorted(left["agents"]) == ["a1", "a2"]
    assert sum(left["agents"].values()) == 61
    assert left["dropped"] == {}
    items = published_items(broker_url)
    assert len(items) == len({item["url"] for item in items}) == 61


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.19", "S1.35")
def test_counters_and_release_reach_the_platform(
    center: SmallCenter, broker_url: str, tmp_path: Path
) -> None:
    assert crawl(broker_url, tmp_path, "--set", "speed=100").status == 0
    center.wait_for(lambda: center.releases and center.reports and center.reports[-1].final)
    assert (center.releases[0].run, center.releases[0].token) == (7, "r1.token")
    reports = center.reports
    assert [report.seq for report in reports] == list(range(1, len(reports) + 1))
    assert {(report.run, report.boot) for report in reports} == {(7, tmp_path.name)}
    assert [report.final for report in reports].count(True) == 1
    last = reports[-1]
    assert (last.total, last.success, last.failed, last.pages) == (61, 61, 0, 61)
    assert (last.sent, last.returned, last.items) == (61, 61, 61)
    for report in reports:
        left = report.total - report.success - report.failed
        assert left == report.queued + report.in_flight


def test_compressed_bodies(center: SmallCenter, broker_url: str, tmp_path: Path) -> None:
    center.compress = True
    assert crawl(broker_url, tmp_path).status == 0
    assert exit_state(tmp_path)["success"] == 61


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.36")
def test_the_chained_policy_names_the_agent(
    center: SmallCenter, broker_url: str, tmp_path: Path
) -> None:
    assert crawl(broker_url, tmp_path, CRAWLYARD_POLICY="chained").status == 0
    first, *others = center.items
    assert first.agent == ""
    assert {item.agent for item in others} <= {"a1", "a2"}


@pytest.mark.slow("3 s")
@pytest.mark.covers("S1.19")
def test_what_the_center_says_of_requests_reaches_the_books(
    center: SmallCenter, broker_url: str, tmp_path: Path
) -> None:
    """Held, then sent on, or refused, or skipped at the first attempt."""

    def spare(batch: DownloadBatch) -> list[AnyMessage]:
        said: list[AnyMessage] = []
        refused, skipped, passed = [], [], []
        for item in batch.items:
            which = (item.id, item.attempt)
            if decode_request(item.request).url.endswith("/60"):
                refused.append(which)
            elif item.id % 10 == 3 and item.attempt == 1:
                skipped.append(which)
            else:
                passed.append(item)
        items = [(item.id, item.attempt) for item in passed]
        said.append(DownloadsHeld(run=7, reason="spared", wait_seconds=60, items=items))
        said.append(DownloadsRefused(run=7, reason="robots.txt forbids it", items=refused))
        said.append(Skipped(run=7, reason="no agent is alive", items=skipped))
        said.append(Dispatched(run=7, items=items))
        return said + center.download(msgspec.structs.replace(batch, items=passed))

    center.on_batch = spare
    assert crawl(broker_url, tmp_path).status == 0
    left = exit_state(tmp_path)
    assert (left["total"], left["success"], left["failed"], left["left"]) == (61, 60, 1, 0)
    assert (left["sent"], left["retried"], left["returned"]) == (61, 6, 60)
    assert (left["refused"], left["skipped"], left["timed_out"]) == (1, 6, 0)
    assert left["failures"][0]["reason"] == "refused: robots.txt forbids it"
    center.wait_for(lambda: center.reports and center.reports[-1].final)
    for report in center.reports:
        check_counters(report)


# --- allocation -------------------------------------------------------------------------------


def ready(agent: str, *, ok: bool = True, reason: str = "") -> DownloaderReady:
    return DownloaderReady(run=7, agent=agent, ok=ok, reason=reason)


def allocated(*agents: str, warning: str = "", error: str = "") -> Allocated:
    return Allocated(run=7, agents=list(agents), warning=warning, error=error)


FAILS: dict[str, tuple[list[AnyMessage], str]] = {
    "nobody answers": ([], "no center answered within 1 s; is run_center running?"),
    "none alive": ([allocated(error="no agent is alive")], "no agents: no agent is alive"),
    "none": ([allocated()], "the center gave no agents: none is alive"),
    "one refuses": (
        [allocated("a1", "a2"), ready("a1"), ready("a2", ok=False, reason="full")],
        "agent a2 cannot serve this run: full",
    ),
    "none confirms": ([allocated("a1", "a2")], "none of 2 allocated agents confirmed within 1 s"),
}


@pytest.mark.slow("7 s")
@pytest.mark.covers("S1.31", "S1.35")
@pytest.mark.parametrize("case", list(FAILS))
def test_a_run_without_agents_fails(
    case: str, center: SmallCenter, broker_url: str, tmp_path: Path
) -> None:
    answers, reason = FAILS[case]
    center.on_allocate = lambda message: answers
    # What must be refused at once does not wait; what must be waited for waits not long.
    done = crawl(broker_url, tmp_path, "--set", "allocate_seconds=1")
    assert done.status == 2
    begins, problem = logged(done)
    assert begins == "INFO yardspider: SiteSpider starts"
    assert problem.startswith("ERROR yardspider: run failed: ")
    assert problem.endswith(reason)
    assert (exit_state(tmp_path)["state"], exit_state(tmp_path)["total"]) == ("failed", 0)
    center.wait_for(lambda: center.releases and center.reports)
    assert center.reports[-1].final


GOES_ON: dict[str, tuple[list[AnyMessage], str]] = {
    "fewer": ([allocated("a1"), ready("a1")], "1 agents allocated where 2 were asked for"),
    "warned": ([allocated("a1", warning="only one is alive"), ready("a1")], "only one is alive"),
    "one is silent": ([allocated("a1", "a2"), ready("a1")], "no word from a2; going on without"),
}


@pytest.mark.slow("5 s")
@pytest.mark.covers("S1.35")
@pytest.mark.parametrize("case", list(GOES_ON))
def test_a_run_with_fewer_agents_goes_on_with_a_warning(
    case: str, center: SmallCenter, broker_url: str, tmp_path: Path
) -> None:
    answers, warning = GOES_ON[case]
    center.on_allocate = lambda message: answers
    done = crawl(broker_url, tmp_path, "--set", "allocate_seconds=2")
    assert done.status == 0
    _begins, warned, _ends = logged(done)
    assert warned.startswith(f"WARNING yardspider: {warning}")
    assert exit_state(tmp_path)["success"] == 61


# --- the broker -------------------------------------------------------------------------------


def test_no_broker_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no broker")
    done = crawl(f"sqlite:///{tmp_path}/file/broker.db", tmp_path)
    assert done.status == 2
    _begins, problem = logged(done)
    assert problem.startswith("ERROR yardspider: run failed: BROKER_URL: ")
    assert exit_state(tmp_path)["state"] == "failed"


@pytest.fixture
async def transport_of(broker_url: str, tmp_path: Path) -> AsyncIterator[Any]:
    made: list[RemoteTransport] = []

    def make(**settings: Any) -> RemoteTransport:
        run = read_run(variables(broker_url, tmp_path))
        made.append(RemoteTransport(run, SpiderSettings().changed(settings, origin="test")))
        return made[-1]

    yield make
    for transport in made:
        await transport.close()


def item(number: int) -> RequestItem:
    raw = encode_request(Request(f"http://site.test/{number}").download())
    return RequestItem(number, 1, "site.test", "", raw)


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.42")
async def test_requests_are_sent_again_when_the_queue_was_gone(
    transport_of: Any, center: SmallCenter, broker_url: str
) -> None:
    transport = transport_of()
    await transport.allocate()
    other = connect(broker_url, name="other")
    queue = topology.CENTER_REQUESTS.name
    try:
        other.delete(queue)
        with pytest.raises(Unroutable):
            other.depth(queue)
        transport.send([item(1)])
        async with asyncio.timeout(30):
            # A center that lives through the loss of its queue takes it; else it waits there.
            while not center.items and not waiting_in(other, queue):
                await asyncio.sleep(0.05)
    finally:
        other.close()


def waiting_in(broker: Broker, queue: str) -> int:
    try:
        return broker.depth(queue).ready
    except Unroutable:
        return 0


@pytest.mark.slow("2 s")
async def test_requests_that_fail_while_others_are_sent_again_are_sent_too(
    transport_of: Any, center: SmallCenter, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = transport_of()
    await transport.allocate()
    other = connect(broker_url, name="other")
    queue = topology.CENTER_REQUESTS.name
    publish = aio.publish

    async def fail_another_meanwhile(broker: Any, messages: Any) -> None:
        monkeypatch.undo()
        other.delete(queue)
        transport.send([item(2)])
        while not transport._publisher._failed:
            await asyncio.sleep(0.01)
        other.declare(topology.CENTER_REQUESTS)
        await publish(broker, messages)

    try:
        other.delete(queue)
        monkeypatch.setattr(aio, "publish", fail_another_meanwhile)
        transport.send([item(1)])
        async with asyncio.timeout(30):
            while len(center.items) + waiting_in(other, queue) < 2:
                await asyncio.sleep(0.05)
    finally:
        other.close()


@pytest.mark.covers("S1.42")
async def test_a_broker_that_is_gone_ends_the_run(transport_of: Any, center: SmallCenter) -> None:
    transport = transport_of(publish_retries=0)
    await transport.allocate()
    assert transport._broker is not None
    transport._broker.close()
    transport.send([item(1)])
    with pytest.raises(TransportLost, match=r"took no message|queue of answers is gone"):
        await asyncio.wait_for(transport.receive(), 10)


async def test_what_cannot_be_read_is_set_aside(
    transport_of: Any, center: SmallCenter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    center.broker.purge(DEAD_QUEUE)
    transport = transport_of()
    await transport.allocate()
    queue = topology.run_answers(7, tmp_path.name).name
    bad = DownloadResult(1, 1, "http://h/", 200, [], b"no zlib", compressed=True)
    cut = DownloadResult(2, 1, "http://h/", 200, [], b"x\x9c\xcbH", compressed=True)
    answers = DownloadResults(run=7, agent="a1", items=[bad, cut])
    center.broker.publish([Outgoing(b"\xc1nonsense", key=queue)]).result(10)
    center.broker.publish([Outgoing(encode(answers), key=queue)]).result(10)
    async with asyncio.timeout(20):
        (received,) = await transport.receive()
    assert [result.failure for result in received.items] == [FailureKind.BAD_CONTENT] * 2
    async with asyncio.timeout(20):
        while center.broker.depth(DEAD_QUEUE).ready != 1:
            await asyncio.sleep(0.05)
    assert any("unreadable message" in record.getMessage() for record in caplog.records)


# --- stopping ---------------------------------------------------------------------------------


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("moment", ["allocating", "crawling"])
def test_a_signal_stops_a_run_on_the_platform(
    moment: str, center: SmallCenter, broker_url: str, tmp_path: Path
) -> None:
    if moment == "allocating":
        center.on_allocate = lambda message: []
    center.pages = lambda url: None if url.endswith("5") else tree(url)
    process = subprocess.Popen(
        command("run", SITE),
        cwd=tmp_path,
        env=environment(**variables(broker_url, tmp_path)),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        awaited = center.allocates if moment == "allocating" else center.batches
        center.wait_for(lambda: awaited)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 143
    assert time.monotonic() - began < 5
    assert "Traceback" not in errors
    assert exit_state(tmp_path)["state"] == "stopped"
    center.wait_for(lambda: center.releases and center.reports and center.reports[-1].final)
    last = center.reports[-1]
    assert last.total - last.success - last.failed == exit_state(tmp_path)["left"]


@pytest.mark.slow("1 s")
def test_allocate_is_asked_once(center: SmallCenter, broker_url: str, tmp_path: Path) -> None:
    crawl(broker_url, tmp_path)
    assert [type(message) for message in center.allocates] == [Allocate]
