"""Allocations that outlive their agent's process, and those that have grown old."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from msgspec import structs

from apps.agents.downloader.fetchers import FetchOptions, available_types
from apps.agents.downloader.roster import Roster
from apps.agents.downloader.store import AllocationStore, to_bytes
from tests.agents.downloader.agent_peer import LOOPBACK, AgentPeer, take, until
from tests.agents.downloader.conftest import Running, Start
from tests.yardkit.web_server import WebServer
from yardkit import failpoints, topology
from yardkit.broker import Broker
from yardkit.clock import ManualClock
from yardkit.protocol import (
    AllocateDownloader,
    CutRule,
    DownloaderReady,
    DownloaderSettings,
    DownloaderType,
    FailureKind,
    Heartbeat,
    Register,
    ReleaseDownloader,
)
from yardkit.seals import SealKey, seal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "downloaders"


async def stopped(running: Running) -> None:
    running.stop.set()
    await asyncio.wait_for(running.task, 30)


async def heartbeat_with(other: AgentPeer, problem: str) -> Heartbeat:
    """The next heartbeat that tells of it; of none where it is ""."""

    def look() -> list[Heartbeat]:
        beats = [beat for beat in take(other.heartbeats) if isinstance(beat, Heartbeat)]
        return [
            beat
            for beat in beats
            if (any(problem in text for text in beat.problems) if problem else not beat.problems)
        ]

    return (await until(look))[-1]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "HEARTBEAT_SECONDS", 0.02)


# --- files --------------------------------------------------------------------------------------


@pytest.mark.covers("S1.49")
async def test_an_agent_that_comes_back_knows_its_downloaders(
    start: Start, other: AgentPeer, site: WebServer, folder: Path
) -> None:
    first = start(allocations=folder)
    await other.allocate(cookies={"own": "7"})
    assert [path.name for path in folder.iterdir()] == ["run-7.alloc"], "before it says ready"
    await other.emptied()
    await stopped(first)
    # Its queue has requests for it, and no allocation.
    other.download([site.url("/")])
    again = start(allocations=folder)
    assert (await other.results(1))[0].body == b"hello"
    assert site.seen[0].headers["cookie"] == "own=7"
    other.send(ReleaseDownloader(run=7))
    await until(lambda: not again.agent.downloaders)
    await other.emptied()
    assert list(folder.iterdir()) == []
    await stopped(again)
    start(allocations=folder)
    other.download([site.url("/")])
    assert (await other.results(1))[0].failure == FailureKind.DOWNLOADER_MISSING


@pytest.mark.covers("S1.23")
async def test_cookies_come_sealed_and_one_that_cannot_open_them_registers_again(
    start: Start, other: AgentPeer, site: WebServer, folder: Path
) -> None:
    start(allocations=folder)
    (told,) = await until(lambda: take(other.registrations))
    assert isinstance(told, Register)
    secret = b'{"sid":"s3cret"}'
    command = AllocateDownloader(
        run=7,
        reply_to=other.answers.name,
        settings=DownloaderSettings(allowed_networks=LOOPBACK),
        sealed_cookies=seal(SealKey().public, secret, purpose="run 7"),
    )
    other.send(command)
    await until(lambda: take(other.registrations))
    assert not list(folder.glob("*.alloc"))
    # What the center answers to that.
    sealed = seal(told.seal_key, secret, purpose="run 7")
    other.send(structs.replace(command, sealed_cookies=sealed))
    assert (await other.receive(DownloaderReady)).ok
    other.download([site.url("/")])
    await other.results(1)
    assert site.seen[0].headers["cookie"] == "sid=s3cret"
    # After a restart there is another key: the file, its owner's alone, holds them opened.
    assert b"s3cret" in (folder / "run-7.alloc").read_bytes()


@pytest.mark.covers("S1.31")
async def test_what_is_loaded_counts_as_allocated_now(
    start: Start, other: AgentPeer, folder: Path
) -> None:
    folder.mkdir(parents=True)
    settings = DownloaderSettings(allowed_networks=LOOPBACK)
    old = AllocateDownloader(
        run=7, reply_to=other.answers.name, settings=settings, allocated_at=time.time() - 86_400
    )
    (folder / "run-7.alloc").write_bytes(to_bytes(old))
    clock = ManualClock()
    clock.jump(time.time() - clock.time())
    running = start(allocations=folder, clock=clock)
    await until(lambda: take(other.registrations))
    allocation = running.agent._slots._allocations[7]
    assert allocation.allocated_at == clock.time()
    # And its idle time begins now.
    clock.advance(599)
    await running.agent.sweep()
    assert 7 in running.agent.downloaders
    clock.advance(2)
    await running.agent.sweep()
    assert list(folder.iterdir()) == []


@pytest.mark.covers("S1.26")
async def test_an_idle_downloader_loses_its_file_and_is_found_again(
    start: Start, other: AgentPeer, site: WebServer, folder: Path
) -> None:
    clock = ManualClock()
    clock.jump(time.time() - clock.time())
    first = start(allocations=folder, clock=clock)
    await other.allocate()
    clock.advance(601)
    await first.agent.sweep()
    assert not first.agent.downloaders
    assert list(folder.iterdir()) == []
    # Here it rests only: the run has not given its agents back.
    other.download([site.url("/")], dispatched_at=clock.time())
    assert (await other.results(1))[0].status == 200
    await first.agent.sweep()
    assert [path.name for path in folder.iterdir()] == ["run-7.alloc"]
    clock.advance(601)
    await other.emptied()
    await first.agent.sweep()
    await stopped(first)
    # After a restart it is unknown: the run tries again, and the center, where the agent has
    # registered, allocates it anew.
    start(allocations=folder, clock=clock)
    other.download([site.url("/")], dispatched_at=clock.time())
    assert (await other.results(1))[0].failure == FailureKind.DOWNLOADER_MISSING
    assert (await other.allocate()).ok
    other.download([site.url("/")], dispatched_at=clock.time())
    assert (await other.results(1))[0].status == 200


@pytest.mark.fault
@pytest.mark.covers("S1.49")
async def test_a_damaged_file_is_told_until_it_is_taken_away(
    start: Start, other: AgentPeer, folder: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / "run-8.alloc").write_bytes(b"")
    start(allocations=folder)
    assert isinstance((await until(lambda: take(other.registrations)))[0], Register)
    beat = await heartbeat_with(other, "allocation file run-8.alloc.bad: it is empty")
    assert len(beat.problems) == 1
    assert (await other.allocate()).ok
    (folder / "run-8.alloc.bad").unlink()
    await heartbeat_with(other, "")


@pytest.mark.fault
async def test_an_allocation_that_makes_no_sense_any_more_is_set_aside(
    start: Start, other: AgentPeer, folder: Path
) -> None:
    folder.mkdir(parents=True)
    settings = DownloaderSettings(type=DownloaderType.FILE)
    kept = AllocateDownloader(run=8, reply_to="r", settings=settings)
    (folder / "run-8.alloc").write_bytes(to_bytes(kept))
    running = start(allocations=folder)
    beat = await heartbeat_with(
        other, "run-8.alloc.bad: bad downloader settings: this agent cannot"
    )
    assert (beat.downloaders, dict(running.agent.downloaders)) == (0, {})
    assert "set AGENT_FILES" in (await other.allocate(type=DownloaderType.FILE)).reason


@pytest.mark.fault
async def test_a_file_that_cannot_be_written_keeps_no_run_waiting(
    start: Start, other: AgentPeer, site: WebServer, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # In the way of the folder.
    folder.parent.write_text("")
    running = start(allocations=folder)
    assert (await other.allocate()).ok
    other.download([site.url("/")])
    assert (await other.results(1))[0].status == 200
    beat = await heartbeat_with(other, "run 7: its allocation file cannot be kept: ")
    assert beat.problems[0] == "the allocation files could not be read: Not a directory"
    await running.agent.sweep()
    assert caplog.text.count("its allocation file cannot be kept") == 1
    folder.parent.unlink()
    await running.agent.sweep()
    assert [path.name for path in folder.iterdir()] == ["run-7.alloc"]
    # What could not be read stays a problem until the next start reads it.
    assert running.agent.problems == beat.problems[:1]


@pytest.mark.fault
async def test_a_defect_while_a_file_is_written_keeps_no_run_waiting(
    start: Start, other: AgentPeer, folder: Path
) -> None:
    failpoints.configure({"FAILPOINTS": "agent.allocation_written=raise@1"})
    try:
        running = start(allocations=folder)
        assert (await other.allocate()).ok
    finally:
        failpoints.configure({})
    assert running.agent.problems == ["run 7: its allocation file cannot be kept: FailpointError"]
    await running.agent.sweep()
    assert [path.name for path in folder.iterdir()] == ["run-7.alloc"]


@pytest.mark.fault
async def test_one_file_that_never_works_does_not_stop_the_others(folder: Path) -> None:
    def allocation(run: int) -> AllocateDownloader:
        return AllocateDownloader(run=run, reply_to="r", settings=DownloaderSettings())

    (folder / "run-1.alloc").mkdir(parents=True)
    roster = Roster(AllocationStore(folder))
    for run in (1, 2, 3):
        roster.keep(allocation(run))
    await roster.flush()
    assert not (folder / "run-2.alloc").exists(), "nothing is tried on a disk that refuses"
    await roster.flush()
    assert (folder / "run-2.alloc").is_file()
    assert (folder / "run-3.alloc").is_file()
    assert roster.problems == ["run 1: its allocation file cannot be kept: Is a directory"]
    roster.forget(2)
    assert await roster.settle(2)
    (folder / "run-1.alloc").rmdir()
    await roster.flush()
    assert sorted(path.name for path in folder.iterdir()) == ["run-1.alloc", "run-3.alloc"]
    assert roster.problems == []


async def test_problems_are_a_bounded_list_of_short_texts(
    start: Start, other: AgentPeer, folder: Path
) -> None:
    folder.mkdir(parents=True)
    for number in range(30):
        (folder / f"run-{number}.alloc").write_bytes(b"")
        (folder / f"run-{number}.alloc.bad.{'9' * 100}").write_bytes(b"")
    start(allocations=folder)
    beat = await heartbeat_with(other, "and 41 more problems")
    assert len(beat.problems) == 20
    assert max(map(len, beat.problems)) <= 200


async def test_an_agent_without_a_folder_keeps_nothing(
    start: Start, other: AgentPeer, tmp_path: Path
) -> None:
    running = start()
    await other.allocate()
    await running.agent.sweep()
    other.send(ReleaseDownloader(run=7))
    await other.emptied()
    assert not list(tmp_path.rglob("*.alloc"))


async def test_the_last_of_many_commands_counts(
    start: Start, other: AgentPeer, folder: Path
) -> None:
    for _ in range(10):
        other.ask()
        other.send(ReleaseDownloader(run=7))
    other.ask()
    running = start(allocations=folder)
    for _ in range(11):
        assert (await other.receive(DownloaderReady)).ok
    await other.emptied()
    assert list(running.agent.downloaders) == [7]
    assert [path.name for path in folder.iterdir()] == ["run-7.alloc"]
    other.send(ReleaseDownloader(run=7))
    other.ask()
    other.send(ReleaseDownloader(run=7))
    assert (await other.receive(DownloaderReady)).ok
    await other.emptied()
    assert not running.agent.downloaders
    assert list(folder.iterdir()) == []


# --- age and types ------------------------------------------------------------------------------


@pytest.mark.covers("S1.31")
async def test_an_old_allocation_is_dropped(
    start: Start, other: AgentPeer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    running = start(clock=clock)
    other.ask(allocated_at=clock.time() - 31)
    await until(lambda: running.agent.counters.stale == 1)
    await other.emptied()
    assert other.arrived(DownloaderReady) == []
    assert not running.agent.downloaders
    assert "run 7: an allocation of 31 s ago, dropped" in caplog.text
    assert "1 allocations too old" in str(running.agent.counters)
    other.ask(allocated_at=clock.time() - 30)
    assert (await other.receive(DownloaderReady)).ok


async def test_an_allocation_of_the_future_or_of_unknown_age_is_done(
    start: Start, other: AgentPeer
) -> None:
    clock = ManualClock()
    start(clock=clock)
    for allocated_at in (clock.time() + 3600, 0.0):
        other.ask(allocated_at=allocated_at)
        assert (await other.receive(DownloaderReady)).ok


@pytest.mark.covers("S1.20")
async def test_it_says_what_it_can_make(start: Start, other: AgentPeer, tmp_path: Path) -> None:
    options = FetchOptions(files=tmp_path)
    start(fetching=options)
    registered = (await until(lambda: take(other.registrations)))[0]
    beat = (await until(lambda: take(other.heartbeats)))[0]
    assert isinstance(registered, Register)
    assert isinstance(beat, Heartbeat)
    assert registered.types == beat.types == available_types(options)
    assert {DownloaderType.HTTP, DownloaderType.FILE} <= set(beat.types)
    assert beat.problems == []


@pytest.mark.covers("S1.27", "S1.31")
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"cut": [CutRule(), CutRule(pattern="(")]}, "cut rule 2: bad pattern: missing )"),
        ({"encoding": "klingon"}, "encoding 'klingon' is unknown"),
        ({"cookies": {"a b": "c"}}, "cookies: Illegal key 'a b'"),
        ({"cookies": {"a": "s3cret\r\nX: y"}}, "cookies: control characters in 'a'"),
        ({"cookies": {"a\x7f": "s3cret"}}, "cookies: control characters in 'a\\x7f'"),
        (
            {"cookies": {"a": "s3cret\x00"}, "type": DownloaderType.IMPERSONATE},
            "cookies: control characters in 'a'",
        ),
        ({"timeout_seconds": float("nan")}, "timeout_seconds is nan"),
    ],
)
async def test_settings_that_cannot_work_are_refused_with_a_reason(
    start: Start,
    broker: Broker,
    other: AgentPeer,
    folder: Path,
    settings: dict[str, object],
    reason: str,
) -> None:
    running = start(allocations=folder)
    ready = await other.allocate(**settings)
    assert not ready.ok
    assert reason in ready.reason
    assert "s3cret" not in ready.reason
    assert not running.agent.downloaders
    assert not folder.exists()
