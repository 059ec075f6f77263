"""An agent on a real broker with a real web server: every command, every kind of answer."""

from __future__ import annotations

import asyncio
import dataclasses
import time

import msgspec
import pytest

from apps.agents.downloader.agent import SWEEP_SECONDS
from apps.agents.downloader.vitals import AgentCounters
from tests.agents.downloader.agent_peer import LOOPBACK, AgentPeer, Unreliable, item, until
from tests.agents.downloader.conftest import Start
from tests.agents.downloader.gate import Gate
from tests.yardkit.web_server import WebServer, page
from yardkit.broker import Broker, Delivery, Outgoing
from yardkit.broker.base import DEAD_QUEUE, HEADER_REASON
from yardkit.clock import ManualClock
from yardkit.protocol import (
    AllocateDownloader,
    DownloadCommand,
    DownloaderReady,
    DownloaderSettings,
    DownloadRequest,
    DownloadResults,
    ExitAgent,
    FailureKind,
    ReleaseDownloader,
    RequestItem,
)

# --- allocation ---------------------------------------------------------------------------------


@pytest.mark.covers("S1.23", "S1.31")
async def test_allocate(start: Start, other: AgentPeer, caplog: pytest.LogCaptureFixture) -> None:
    running = start()
    ready = await other.allocate()
    assert ready == DownloaderReady(run=7, agent="agent-1", ok=True)
    kept = running.agent.downloaders[7]
    # A second one for the same run is answered as well, and changes nothing.
    assert (await other.allocate()).ok
    assert running.agent.downloaders[7] is kept
    assert "run 7: allocated again" in caplog.text
    await other.emptied()


async def test_a_run_that_was_started_anew_gets_a_downloader_of_its_own(
    start: Start, broker: Broker, other: AgentPeer
) -> None:
    running = start()
    assert (await other.allocate(cookies={"sid": "old"})).ok
    before = running.agent.downloaders[7]
    anew = AgentPeer(broker, boot="boot2")
    assert (await anew.allocate(cookies={"sid": "new"})).ok
    after = running.agent.downloaders[7]
    assert after is not before
    assert after.settings.cookies == {"sid": "new"}
    await other.emptied()


async def test_requests_right_behind_an_allocation_find_their_downloader(
    start: Start, other: AgentPeer, site: WebServer
) -> None:
    # As after a restart of the agent: both wait in its queue.
    other.send(
        AllocateDownloader(
            run=7,
            reply_to=other.answers.name,
            settings=DownloaderSettings(allowed_networks=LOOPBACK),
        )
    )
    other.download([site.url("/")])
    start()
    assert (await other.results(1))[0].status == 200


@pytest.mark.fault
async def test_commands_that_meet_a_defect_leave_room_for_others(
    start: Start, other: AgentPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(prefetch=2)
    await other.allocate()

    async def fail(run: int) -> None:
        raise ZeroDivisionError(f"run {run}")

    monkeypatch.setattr(running.agent._slots, "release", fail)
    dead = broker.subscribe(DEAD_QUEUE)
    for run in range(1, 6):
        other.send(ReleaseDownloader(run=run))
    letters: list[Delivery] = []

    def collected() -> bool:
        letters.extend(taken := dead.take(10))
        dead.ack(taken)
        return len(letters) == 5

    await until(collected)
    assert str(letters[0].headers[HEADER_REASON]) == "ZeroDivisionError: run 1"
    await other.emptied()
    assert (await other.allocate()).ok


async def test_settings_that_make_no_sense_are_answered(start: Start, other: AgentPeer) -> None:
    running = start()
    ready = await other.allocate(allowed_networks=["nonsense"])
    assert not ready.ok
    assert "nonsense" in ready.reason
    assert running.agent.downloaders == {}
    await other.emptied()


async def test_release(start: Start, other: AgentPeer, site: WebServer) -> None:
    running = start()
    gate = site.answers["/gate"] = Gate()
    await other.allocate(concurrency=2)
    other.download([site.url("/gate")] * 5)
    await until(lambda: gate.waiting == 2)
    other.send(ReleaseDownloader(run=7))
    await until(lambda: running.agent.downloaders == {})
    await until(lambda: running.agent.counters.discarded == 5)
    other.send(ReleaseDownloader(run=99))
    await other.emptied()


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.26")
async def test_it_looks_for_idle_downloaders_every_second(start: Start, other: AgentPeer) -> None:
    assert SWEEP_SECONDS == 1.0
    clock = ManualClock()
    running = start(clock=clock)
    await other.allocate()
    clock.advance(601)
    await until(lambda: running.agent.downloaders == {})


@pytest.mark.covers("S1.26")
async def test_idle_downloaders_are_released(
    start: Start, other: AgentPeer, site: WebServer
) -> None:
    clock = ManualClock()
    clock.jump(time.time() - clock.time())
    running = start(clock=clock)
    gate = site.answers["/gate"] = Gate()
    await other.allocate(timeout_seconds=100)
    other.download([site.url("/gate")])
    await until(lambda: gate.waiting)
    clock.advance(601)
    await running.agent.sweep()
    assert 7 in running.agent.downloaders, "one that works is not idle"
    gate.opened.set()
    await other.results(1)
    await other.emptied()
    clock.advance(599)
    await running.agent.sweep()
    assert 7 in running.agent.downloaders
    clock.advance(2)
    await running.agent.sweep()
    assert running.agent.downloaders == {}
    # A slow run may come back after longer than that: it has not given its agents back.
    other.download([site.url("/")], dispatched_at=clock.time())
    assert (await other.results(1))[0].status == 200
    other.send(ReleaseDownloader(run=7))
    await until(lambda: running.agent.downloaders == {})
    other.download([site.url("/")], dispatched_at=clock.time())
    assert (await other.results(1))[0].failure == FailureKind.DOWNLOADER_MISSING


# --- what cannot be understood ------------------------------------------------------------------


async def test_a_bad_request_among_good_ones(
    start: Start, other: AgentPeer, site: WebServer
) -> None:
    start()
    await other.allocate()
    good = item(0, DownloadRequest(url=site.url("/")))
    bad = RequestItem(1, 1, "", "", msgspec.Raw(msgspec.msgpack.encode([1, 2, 3])))
    other.send(
        DownloadCommand(
            run=7, reply_to=other.answers.name, items=[good, bad], dispatched_at=time.time()
        )
    )
    results = await other.results(2)
    assert results[0].status == 200
    assert results[1].failure == FailureKind.BAD_REQUEST
    assert "not a download request" in results[1].error
    await other.emptied()


async def test_a_command_without_requests_is_done(start: Start, other: AgentPeer) -> None:
    start()
    await other.allocate()
    other.download([])
    await other.emptied()


def test_every_counter_is_told() -> None:
    counters = AgentCounters()
    assert str(counters) == "0 downloads"
    for number, field in enumerate(dataclasses.fields(counters), 1):
        setattr(counters, field.name, number)
    said = str(counters)
    numbers = {int(part.split()[0]) for part in said.split(", ")}
    assert numbers == set(range(1, len(dataclasses.fields(counters)) + 1))


# --- when answers cannot be sent ----------------------------------------------------------------


@pytest.mark.covers("S1.47")
async def test_answers_are_offered_again(
    start: Start, broker: Broker, other: AgentPeer, site: WebServer
) -> None:
    unreliable = Unreliable(broker)
    running = start(broker=unreliable)
    await other.allocate()
    unreliable.failures = 3
    other.download([site.url("/")])
    assert (await other.results(1))[0].body == b"hello"
    await other.emptied()
    assert running.agent.counters.dropped == 0


@pytest.mark.covers("S1.47")
async def test_answers_nobody_takes_are_dropped_and_counted(
    start: Start,
    broker: Broker,
    other: AgentPeer,
    site: WebServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    unreliable = Unreliable(broker)
    running = start(broker=unreliable, publish_attempts=3)
    await other.allocate()
    await other.emptied()
    unreliable.failures = 3
    other.download([site.url("/")] * 2)
    await until(lambda: running.agent.counters.dropped == 2)
    await other.emptied()
    assert "2 answers for run.7.boot: dropped after 3 attempts: connection lost" in caplog.text


async def test_answers_to_a_run_that_is_gone_are_dropped_at_once(
    start: Start, broker: Broker, other: AgentPeer, site: WebServer
) -> None:
    unreliable = Unreliable(broker)
    running = start(broker=unreliable)
    await other.allocate()
    await other.emptied()
    other.from_run.close()
    broker.delete(other.answers.name)
    other.download([site.url("/")] * 3)
    await until(lambda: running.agent.counters.unroutable == 3)
    await other.emptied()
    answers = [one for one in unreliable.published if one.key == other.answers.name]
    assert len(answers) == 2, "the downloader's, and one batch that was not offered again"


@pytest.mark.slow("1 s")
async def test_a_broker_that_is_away_does_not_fill_the_memory(
    start: Start, broker: Broker, other: AgentPeer, site: WebServer
) -> None:
    unreliable = Unreliable(broker)
    site.answers["/big"] = page(b"x" * 100_000)
    running = start(broker=unreliable, max_pending_bytes=1_000_000)
    await other.allocate(concurrency=5)
    await other.emptied()
    unreliable.silent = True
    other.download([site.url("/big")] * 200)
    await until(lambda: running.agent.counters.finished >= 10)
    await asyncio.sleep(0.1)
    # What is on its way, and one more of each place that was at work already.
    assert running.agent.counters.finished <= 10 + 5


# --- the end ------------------------------------------------------------------------------------


@pytest.mark.covers("S1.23")
async def test_exit_finishes_what_is_held(
    start: Start, other: AgentPeer, site: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    running = start()
    gate = site.answers["/gate"] = Gate()
    await other.allocate(concurrency=1)
    other.download([site.url("/gate")] * 3)
    await until(lambda: gate.waiting)
    other.send(ExitAgent(reason="maintenance"))
    await until(lambda: "asked to exit: maintenance" in caplog.text)
    gate.opened.set()
    await asyncio.wait_for(running.task, 30)
    assert len(await other.results(3)) == 3
    await other.emptied()


async def test_stop_gives_back_what_is_not_answered(
    start: Start, broker: Broker, other: AgentPeer, site: WebServer
) -> None:
    running = start(stop_seconds=0.1)
    gate = site.answers["/gate"] = Gate()
    await other.allocate(concurrency=2)
    other.download([site.url("/")])
    await other.results(1)
    await other.emptied()
    other.download([site.url("/gate")] * 4)
    await until(lambda: gate.waiting == 2)
    running.stop.set()
    await asyncio.wait_for(running.task, 30)
    await until(lambda: broker.depth(other.commands.name).ready == 1)
    again = broker.subscribe(other.commands.name)
    deliveries = await until(lambda: again.take(10))
    assert deliveries[0].redelivered


async def test_stop_waits_for_what_is_nearly_done(
    start: Start, other: AgentPeer, site: WebServer
) -> None:
    running = start(stop_seconds=20)
    gate = site.answers["/gate"] = Gate()
    await other.allocate()
    other.download([site.url("/gate")])
    await until(lambda: gate.waiting)
    running.stop.set()
    gate.opened.set()
    await asyncio.wait_for(running.task, 30)
    assert (await other.results(1))[0].body == b"late"
    assert other.depth() == 0


async def test_commands_are_taken_a_few_at_a_time(
    start: Start, broker: Broker, other: AgentPeer, site: WebServer
) -> None:
    start(prefetch=4)
    gate = site.answers["/gate"] = Gate()
    await other.allocate(concurrency=100)
    for number in range(10):
        other.download([site.url("/gate")] * 2, first=2 * number)
    await until(lambda: gate.waiting == 8)
    assert broker.depth(other.commands.name).ready == 6
    gate.opened.set()
    received = 0
    while received < 20:
        received += len((await other.receive(DownloadResults)).items)
    await other.emptied()


async def test_the_queue_outlives_the_agent(start: Start, broker: Broker, other: AgentPeer) -> None:
    first = start()
    await other.allocate()
    await other.emptied()
    first.stop.set()
    await first.task
    future = broker.publish([Outgoing(body=b"later", key=other.commands.name)])
    assert future.result(30) is None
