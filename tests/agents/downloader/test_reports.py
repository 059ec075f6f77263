"""What a center hears of the hosts it has sent an agent to: every request once, however it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from email.utils import formatdate
from typing import Any

import pytest

from apps.agents.downloader.reports import HostReports, retry_after_seconds
from tests.agents.downloader.agent_peer import AgentPeer, Unreliable, take, until
from tests.agents.downloader.conftest import Start
from tests.agents.downloader.gate import Gate
from tests.yardkit.web_server import WebServer, page
from yardkit import topology
from yardkit.broker import Broker, Outgoing
from yardkit.clock import ManualClock
from yardkit.protocol import DownloadsFinished, HostResult, ReleaseDownloader, decode


class Center:
    """One center's own queue of reports."""

    def __init__(self, broker: Broker, name: str = "c1") -> None:
        spec = topology.center_reports(name)
        broker.declare(spec)
        self.queue = spec.name
        self.heard: list[DownloadsFinished] = []
        self._subscription = broker.subscribe(spec.name)

    def finished(self) -> dict[str, int]:
        """How many requests have ended by now, by host."""
        for message in take(self._subscription):
            assert isinstance(message, DownloadsFinished)
            self.heard.append(message)
        counts: dict[str, int] = {}
        for one in self.hosts():
            counts[one.host] = counts.get(one.host, 0) + one.finished
        return counts

    def hosts(self) -> list[HostResult]:
        return [host for message in self.heard for host in message.hosts]

    async def hears(self, **counts: int) -> None:
        """Wait until so many have ended at each host."""
        await until(lambda: self.finished() == counts)


@pytest.fixture
def center(broker: Broker) -> Center:
    return Center(broker)


async def test_finished_requests_are_counted_by_host(
    start: Start, broker: Broker, other: AgentPeer, site: WebServer, center: Center
) -> None:
    unreliable = Unreliable(broker)
    start(broker=unreliable)
    site.answers |= {
        "/busy": page(b"", status="429 Too Many Requests", headers={"Retry-After": "7"}),
        "/away": page(b"", status="503 Away", headers={"retry-after": "120"}),
        "/broken": page(b"", status="500 Broken", headers={"Retry-After": "900"}),
    }
    await other.allocate()
    paths = ["/"] * 40 + ["/busy", "/away", "/broken"]
    other.download([site.url(path) for path in paths], report_to=center.queue, host="a")
    other.download([site.url("/"), "no url"], report_to=center.queue, host="b")
    await other.results(43)
    await center.hears(a=43, b=2)
    assert {(heard.run, heard.agent) for heard in center.heard} == {(7, "agent-1")}
    busy = {host: sum(one.busy for one in center.hosts() if one.host == host) for host in "ab"}
    assert busy == {"a": 2, "b": 0}
    assert max(one.retry_after_seconds for one in center.hosts()) == 120
    sent = [one for one in unreliable.published if one.key == center.queue]
    assert len(sent) < 10, "not one for each request"
    assert {(one.persistent, one.mandatory, one.ttl_seconds) for one in sent} == {
        (False, False, 60)
    }


async def test_requests_that_were_never_sent_are_counted_too(
    start: Start, other: AgentPeer, site: WebServer, center: Center
) -> None:
    clock = ManualClock()
    clock.jump(time.time() - clock.time())
    running = start(clock=clock)
    gate = site.answers["/gate"] = Gate()
    where: dict[str, Any] = {"report_to": center.queue, "dispatched_at": clock.time()}
    other.download([site.url("/")] * 2, host="missing", **where)
    await center.hears(missing=2)
    await other.allocate(concurrency=2, timeout_seconds=1000)
    other.download([site.url("/")] * 3, host="void", report_to=center.queue, dispatched_at=1.0)
    await center.hears(missing=2, void=3)
    other.download([site.url("/gate")] * 4, host="late", **where)
    await until(lambda: gate.waiting == 2)
    assert center.finished() == {"missing": 2, "void": 3}
    clock.advance(61)
    gate.opened.set()
    await center.hears(missing=2, void=3, late=4)
    assert running.agent.counters.expired == 3 + 2
    gate.opened.clear()
    where["dispatched_at"] = clock.time()
    other.download([site.url("/gate")] * 5, host="released", **where)
    await until(lambda: gate.waiting == 4)
    other.send(ReleaseDownloader(run=7))
    await center.hears(missing=2, void=3, late=4, released=5)
    await other.emptied()


async def test_nobody_who_did_not_ask_hears_of_it(
    start: Start, broker: Broker, other: AgentPeer, site: WebServer
) -> None:
    unreliable = Unreliable(broker)
    running = start(broker=unreliable)
    await other.allocate()
    other.download([site.url("/")] * 3)
    await other.results(3)
    await other.emptied()
    assert running.agent._reports._pending == {}
    assert running.agent._reports._sending is None
    keys = {one.key for one in unreliable.published}
    assert keys == {topology.CENTER_REGISTER.name, "", other.answers.name}


async def test_a_center_that_is_gone_is_no_failure(
    start: Start,
    other: AgentPeer,
    site: WebServer,
    center: Center,
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = start()
    await other.allocate()
    other.download([site.url("/")], report_to="center.reports.gone")
    other.download([site.url("/")], report_to=center.queue, first=1)
    await other.results(2)
    await center.hears(host=1)
    assert str(running.agent.counters) == "2 downloads"
    assert "report" not in caplog.text


async def test_a_broker_that_fails_for_a_moment_loses_no_report(
    start: Start, broker: Broker, other: AgentPeer, center: Center, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.agents.downloader.reports.REPORT_SECONDS", 1000.0)
    unreliable = Unreliable(broker)
    running = start(broker=unreliable)
    other.download(["http://a/"] * 2, report_to=center.queue)
    await other.results(2)
    await other.emptied()
    unreliable.failures = 2
    running.agent._reports._hurry.set()
    await center.hears(host=2)
    assert unreliable.failures == 0


async def test_reports_leave_before_the_agent_does(
    start: Start, other: AgentPeer, site: WebServer, center: Center, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.agents.downloader.reports.REPORT_SECONDS", 1000.0)
    running = start()
    await other.allocate()
    other.download([site.url("/")] * 3, report_to=center.queue)
    await other.results(3)
    await other.emptied()
    assert center.finished() == {}
    running.stop.set()
    await running.task
    assert center.finished() == {"host": 3}


async def test_many_hosts_travel_in_several_messages(
    start: Start, other: AgentPeer, center: Center, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.agents.downloader.reports.MAX_HOSTS", 4)
    start()
    for number in range(10):
        other.download(["http://a/"], report_to=center.queue, host=f"h{number}")
    await center.hears(**{f"h{number}": 1 for number in range(10)})
    assert max(len(message.hosts) for message in center.heard) <= 4


NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 5 ", 5.0),
        ("0", 0.0),
        ("999999", 3600.0),
        ("9" * 10_000, 3600.0),
        ("-5", 0.0),
        ("1e400", 0.0),
        ("nan", 0.0),
        ("soon", 0.0),
        ("", 0.0),
        ("\x00", 0.0),
        (formatdate(NOW + 90, usegmt=True), 90.0),
        (formatdate(NOW - 90, usegmt=True), 0.0),
        (formatdate(NOW + 86_400, usegmt=True), 3600.0),
        ("Fri, 99 Foo 2026 99:99:99 GMT", 0.0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 -9999", 0.0),
    ],
    ids=range(17),
)
def test_retry_after(value: str, seconds: float) -> None:
    assert retry_after_seconds(value, NOW) == seconds


async def test_reports_of_all_runs_and_centers_go_in_one_publish() -> None:
    publishes: list[list[tuple[str, int]]] = []
    confirmed = asyncio.Event()

    async def deliver(messages: Sequence[Outgoing], _what: str, requests: int) -> bool:
        assert requests == 0
        runs = [decode(message.body).run for message in messages]  # type: ignore[union-attr]
        publishes.append(list(zip([message.key for message in messages], runs, strict=True)))
        return await confirmed.wait()

    reports = HostReports(deliver, "agent-1", ManualClock())
    expected = [(f"center.{center}", run) for center in range(2) for run in range(30)]
    for center, run in expected:
        reports.add(center, run, "a.test", None)
    await until(lambda: bool(publishes))
    confirmed.set()
    await reports.drain(10)
    assert publishes == [expected]
