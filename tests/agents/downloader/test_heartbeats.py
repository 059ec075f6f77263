"""What an agent says of itself on a real broker: that it has started, is alive, and how it is."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import psutil
import pytest

from apps.agents.downloader import heartbeat_sender
from apps.agents.downloader.options import AgentIdentity
from apps.agents.downloader.vitals import AgentVitals
from tests.agents.downloader.agent_peer import AgentPeer, Unreliable, take, until
from tests.agents.downloader.conftest import Start
from tests.yardkit.web_server import WebServer
from yardkit import topology
from yardkit.broker import Broker
from yardkit.clock import ManualClock
from yardkit.protocol import Heartbeat, Register


@pytest.mark.covers("S1.20", "S1.21")
async def test_it_registers_and_says_that_it_is_alive(start: Start, other: AgentPeer) -> None:
    start()
    registered = await until(lambda: take(other.registrations))
    beats = await until(lambda: take(other.heartbeats))
    register, beat = registered[0], beats[0]
    assert isinstance(register, Register)
    assert isinstance(beat, Heartbeat)
    assert (register.agent, register.name) == ("agent-1", "test agent")
    assert register.processors == psutil.cpu_count()
    assert register.total_memory_bytes == psutil.virtual_memory().total
    assert register.labels == {"zone": "a"}
    assert beat.boot == register.boot
    assert 0 < beat.free_memory_bytes < beat.total_memory_bytes
    assert 0 <= beat.cpu_percent <= 100
    assert (beat.downloaders, beat.qps, beat.version) == (0, 0.0, "1")


@pytest.mark.covers("S1.20")
async def test_heartbeats_count_downloaders(
    start: Start, other: AgentPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "HEARTBEAT_SECONDS", 0.02)
    start()
    await other.allocate()
    await until(
        lambda: [
            beat
            for beat in take(other.heartbeats)
            if isinstance(beat, Heartbeat) and beat.downloaders == 1
        ]
    )


@pytest.mark.covers("S1.20")
async def test_heartbeats_say_how_busy_it_and_its_server_are(
    start: Start, other: AgentPeer, site: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "HEARTBEAT_SECONDS", 0.02)
    clock = ManualClock()
    clock.jump(time.time() - clock.time())
    start(clock=clock)
    await other.allocate()
    other.download([site.url("/")] * 10, dispatched_at=clock.time())
    await other.results(10)
    used = time.process_time()
    while time.process_time() < used + 0.05:
        pass
    # Ten in the second that is over, of the last five.
    clock.advance(1)
    beats: list[Heartbeat] = []
    while not any(beat.qps == 2.0 for beat in beats):
        beats += await until(lambda: take(other.heartbeats))
    assert max(beat.cpu_percent for beat in beats) > 0


@pytest.mark.covers("S1.22")
async def test_a_heartbeat_every_five_seconds(
    broker: Broker, other: AgentPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(
        heartbeat_sender, "asyncio", SimpleNamespace(sleep=sleep, timeout=asyncio.timeout)
    )
    vitals = AgentVitals(AgentIdentity(agent="agent-1", name="a"), ManualClock(), ())
    with pytest.raises(asyncio.CancelledError):
        await heartbeat_sender.HeartbeatSender(
            broker, vitals, lambda: vitals.heartbeat(0, [])
        ).keep_beating()
    assert slept == [5.0, 5.0, 5.0]
    heard: list[Heartbeat] = []
    while len(heard) < 3:
        heard += await until(lambda: take(other.heartbeats))
    assert [beat.heartbeats for beat in heard] == [1, 2, 3]


@pytest.mark.covers("S1.22", "S1.47")
async def test_heartbeats_outlive_a_broker_that_fails(
    start: Start,
    broker: Broker,
    other: AgentPeer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(topology, "HEARTBEAT_SECONDS", 0.02)
    caplog.set_level("INFO")
    unreliable = Unreliable(broker)
    start(broker=unreliable)
    await until(lambda: take(other.heartbeats))
    unreliable.failures = 5
    await until(lambda: "sending heartbeats works again" in caplog.text)
    monkeypatch.setattr(heartbeat_sender, "CONFIRM_SECONDS", 0.05)
    unreliable.silent = True
    await until(lambda: "TimeoutError" in caplog.text)
    monkeypatch.setattr(heartbeat_sender, "CONFIRM_SECONDS", 5.0)
    unreliable.silent = False
    await until(lambda: caplog.text.count("sending heartbeats works again") == 2)
    await until(lambda: take(other.heartbeats))
    assert caplog.text.count("sending heartbeats fails") == 2


@pytest.mark.covers("S1.47")
async def test_it_registers_as_soon_as_the_broker_takes_it(
    start: Start, broker: Broker, other: AgentPeer, caplog: pytest.LogCaptureFixture
) -> None:
    unreliable = Unreliable(broker)
    unreliable.failures = 4
    start(broker=unreliable)
    await until(lambda: take(other.registrations))
    # Once for the outage, however often it is tried.
    assert caplog.text.count("registration of the agent fails") == 1


async def test_it_can_be_stopped_while_the_broker_is_away(start: Start, broker: Broker) -> None:
    unreliable = Unreliable(broker)
    unreliable.failures = 10**9
    running = start(broker=unreliable)
    await until(lambda: unreliable.published)
    running.stop.set()
    await asyncio.wait_for(running.task, 30)
