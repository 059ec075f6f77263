"""The center with a real broker file: what goes in, what comes out, what is refused."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.utils import timezone

from apps.agents.center.runs import OpenAllocation
from apps.agents.models import Agent, Allocation
from apps.agents.queries import all_open_allocations, open_allocation
from apps.jobs.models import Run
from tests.agents.center_harness import REPLY, CenterHarness
from tests.agents.conftest import running
from yardkit import topology
from yardkit.broker import Outgoing
from yardkit.protocol import (
    Allocate,
    Allocated,
    AllocateDownloader,
    CenterCounters,
    DownloadCommand,
    Heartbeat,
    Register,
    Release,
    ReleaseDownloader,
    Samples,
    Skipped,
    encode,
)
from yardkit.tokens import sign_run_token

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.covers("S1.34", "S1.35", "S1.37")
def test_a_run_gets_agents_and_its_requests_reach_them(harness: CenterHarness, run: Run) -> None:
    queues = [harness.agent("a"), harness.agent("b")]
    answer = harness.allocate(run)
    assert sorted(answer.agents) == ["a", "b"]
    for queue in queues:
        command = harness.receive(queue)
        assert isinstance(command, AllocateDownloader)
        assert command.reply_to == REPLY
    harness.download(run)
    got: list[int] = []
    for queue in queues:
        command = harness.receive(queue)
        assert isinstance(command, DownloadCommand)
        got += [item.id for item in command.items]
    assert sorted(got) == list(range(20))


@pytest.mark.covers("S1.46")
def test_an_agent_that_registered_long_ago_lives_with_its_first_heartbeat(
    harness: CenterHarness, run: Run
) -> None:
    fields: dict[str, Any] = {"agent": "a", "name": "a", "boot": "1", "total_memory_bytes": 9}
    late = Register(processors=2, sent_at=time.time() - 83, **fields)
    harness.send(topology.CENTER_REGISTER.name, late)
    harness.until(Agent.objects.filter(agent_id="a").exists)
    assert not harness.center.liveness.is_alive("a")
    assert timezone.now() - Agent.objects.get(agent_id="a").heartbeat_at > timedelta(seconds=80)
    beat = Heartbeat(free_memory_bytes=5, cpu_percent=1.0, downloaders=0, qps=0.0, **fields)
    harness.broker.publish([Outgoing(body=encode(beat), key="", exchange=topology.HEARTBEATS)])
    harness.until(lambda: harness.center.liveness.is_alive("a"))
    assert harness.allocate(run).agents == ["a"]


@pytest.mark.covers("S1.39")
def test_a_silent_agent_gets_nothing(harness: CenterHarness, run: Run) -> None:
    harness.agent("a")
    silent = harness.agent("b")
    harness.allocate(run)
    assert isinstance(harness.receive(silent), AllocateDownloader)
    harness.silence("b")
    harness.download(run)
    assert isinstance(harness.receive("agent.a"), AllocateDownloader)
    command = harness.receive("agent.a")
    assert isinstance(command, DownloadCommand)
    assert len(command.items) == 20
    assert harness.broker.depth(silent).ready == 0


def test_with_every_agent_silent_the_run_is_told_what_was_skipped(
    harness: CenterHarness, run: Run
) -> None:
    harness.agent("a")
    harness.allocate(run)
    harness.silence("a")
    harness.download(run)
    answer = harness.receive(REPLY)
    assert isinstance(answer, Skipped)
    assert [number for number, _attempt in answer.items] == list(range(20))


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.46")
def test_stale_requests_are_dropped_and_counted(harness: CenterHarness, run: Run) -> None:
    harness.agent("a")
    harness.allocate(run)
    harness.download(run, sent_at=time.time() - topology.DOWNLOAD_EXPIRES_SECONDS - 1)
    counters = harness.receive(topology.STATISTICS.name)
    assert isinstance(counters, CenterCounters)
    assert (counters.received, counters.dispatched, counters.expired) == (20, 0, 20)


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.31", "S1.46")
def test_an_allocate_that_is_too_old_is_dropped_and_counted(
    harness: CenterHarness, run: Run
) -> None:
    agent = harness.agent("a")
    late = Allocate(
        run=run.pk,
        token=sign_run_token(settings.SECRET_KEY, run.pk),
        reply_to=REPLY,
        sent_at=time.time() - topology.ALLOCATE_EXPIRES_SECONDS - 1,
    )
    harness.send(topology.CENTER_CONTROL.name, late)
    answer = harness.receive(REPLY)
    assert isinstance(answer, Allocated)
    assert answer.agents == []
    assert "31 s after it was asked" in answer.error
    assert not Allocation.objects.exists()
    assert harness.broker.depth(agent).ready == 0
    assert told_by(harness, "center.allocations_expired") == 1
    # One that was asked a moment ago, by the same run, is served.
    harness.send(topology.CENTER_CONTROL.name, msgspec.structs.replace(late, sent_at=time.time()))
    answer = harness.receive(REPLY)
    assert isinstance(answer, Allocated)
    assert answer.agents == ["a"]


@pytest.mark.slow("8 s")
@pytest.mark.covers("S1.46")
def test_heartbeats_that_no_center_heard_are_counted(harness: CenterHarness) -> None:
    harness.agent("a")

    def beat(number: int, boot: str = "1") -> None:
        message = Heartbeat(
            agent="a", name="a", boot=boot, total_memory_bytes=9, free_memory_bytes=5,
            cpu_percent=1.0, downloaders=0, qps=0.0, heartbeats=number,
        )  # fmt: skip
        harness.broker.publish(
            [Outgoing(body=encode(message), key="", exchange=topology.HEARTBEATS)]
        ).result(10)
        harness.until(Agent.objects.filter(agent_id="a", boot=boot, heartbeats=number).exists)

    beat(1)
    beat(2)
    beat(5)
    assert told_by(harness, "center.heartbeats_missed") == 2
    # While the center is away the broker drops what grows old; the next one knows where it was.
    harness.restart()
    beat(9)
    assert told_by(harness, "center.heartbeats_missed") == 3
    # Another process of the agent counts anew.
    beat(2, boot="2")
    assert told_by(harness, "center.heartbeats_missed") == 1


def told_by(harness: CenterHarness, series: str) -> float:
    """The next number of a series that the center reports."""
    while True:
        message = harness.receive(topology.STATISTICS.name)
        if isinstance(message, Samples):
            (note,) = message.samples
            assert (note.series, note.project, note.label) == (series, 0, "c1")
            return note.value


def test_no_agent_at_all_is_refused_with_the_reason(
    harness: CenterHarness, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.agents.daemon.WAIT_FOR_AGENTS_SECONDS", 0.2)
    answer = harness.allocate(run)
    assert answer.agents == []
    assert answer.error == "no agent available: no agent has registered yet"
    assert not Allocation.objects.exists()


def test_an_agent_that_comes_a_moment_later_is_waited_for(harness: CenterHarness, run: Run) -> None:
    token = sign_run_token(settings.SECRET_KEY, run.pk)
    harness.send(topology.CENTER_CONTROL.name, Allocate(run=run.pk, token=token, reply_to=REPLY))
    for _ in range(3):
        harness.center.step()
    harness.agent("late")
    answer = harness.receive(REPLY)
    assert isinstance(answer, Allocated)
    assert answer.agents == ["late"]


def test_a_released_run_gives_its_downloaders_back(harness: CenterHarness, run: Run) -> None:
    queue = harness.agent("a")
    harness.allocate(run)
    assert isinstance(harness.receive(queue), AllocateDownloader)
    token = sign_run_token(settings.SECRET_KEY, run.pk)
    harness.send(topology.CENTER_CONTROL.name, Release(run=run.pk, token=token))
    assert harness.receive(queue) == ReleaseDownloader(run=run.pk)
    assert not Allocation.objects.open().exists()


def test_a_restarted_agent_gets_its_allocations_again(harness: CenterHarness, run: Run) -> None:
    queue = harness.agent("a")
    harness.allocate(run)
    first = harness.receive(queue)
    harness.agent("a", boot="2")
    again = harness.receive(queue)
    assert isinstance(first, AllocateDownloader)
    assert isinstance(again, AllocateDownloader)
    # Told now: an agent drops what was decided long ago.
    assert again.allocated_at > first.allocated_at
    assert msgspec.structs.replace(again, allocated_at=first.allocated_at) == first


def test_a_request_with_a_strange_token_is_refused(harness: CenterHarness, run: Run) -> None:
    harness.agent("a")
    harness.allocate(run)
    harness.download(run, token="r1.0000")
    assert "token" in harness.refused()
    harness.send(topology.CENTER_CONTROL.name, Allocate(run=run.pk, token="r1.00", reply_to=REPLY))
    assert "token" in harness.refused()


@pytest.mark.slow("5 s")
@pytest.mark.parametrize("body", [b"", b"\x80\x04.", b"\xff" * 9, b"\x91" * 100_000])
@pytest.mark.parametrize(
    "queue", ["center.requests", "center.control", "center.register", "center.heartbeats.c1"]
)
def test_rubbish_is_refused_with_a_reason_and_the_center_goes_on(
    harness: CenterHarness, run: Run, queue: str, body: bytes
) -> None:
    harness.broker.publish([Outgoing(body=body, key=queue)]).result(10)
    assert "not a message" in harness.refused()
    harness.agent("a")
    assert harness.allocate(run).agents == ["a"]


@pytest.mark.parametrize("queue", ["center.requests", "center.control", "center.register"])
def test_a_message_of_another_kind_is_refused_by_name(harness: CenterHarness, queue: str) -> None:
    heartbeat = Heartbeat(
        agent="a",
        name="a",
        boot="1",
        total_memory_bytes=1,
        free_memory_bytes=1,
        cpu_percent=0.0,
        downloaders=0,
        qps=0.0,
    )
    harness.send(queue, heartbeat)
    assert "Heartbeat" in harness.refused()


def test_after_a_restart_the_dispatch_looks_up_no_run(
    harness: CenterHarness, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    queue = harness.agent("a")
    agent = Agent.objects.get()
    runs = [running() for _ in range(50)]
    for run in runs:
        made = Allocation.objects.create(
            owner=f"run:{run.pk}",
            created_at=timezone.now(),
            project=run.job.project,
            policy="random",
            settings={"allowed_networks": ["127.0.0.0/8"]},
        )
        made.agents.add(agent)
    with django_assert_num_queries(2):
        assert len(all_open_allocations()) == 50
    asked: list[int] = []

    def look_up(run: int) -> OpenAllocation | None:
        asked.append(run)
        return open_allocation(run)

    monkeypatch.setattr("apps.agents.daemon.load", look_up)
    harness.restart()
    for run in runs:
        harness.download(run, count=1)
    served: set[int] = set()
    while len(served) < 50:
        command = harness.receive(queue)
        if isinstance(command, DownloadCommand):
            served.add(command.run)
    assert served == {run.pk for run in runs}
    assert asked == []


def test_a_repeated_question_leaves_no_delivery_behind(harness: CenterHarness, run: Run) -> None:
    question = Allocate(
        run=run.pk, token=sign_run_token(settings.SECRET_KEY, run.pk), reply_to=REPLY
    )
    queue = topology.CENTER_CONTROL.name
    for _ in range(3):
        harness.send(queue, question)
    harness.until(lambda: harness.broker.depth(queue).ready == 0)
    harness.until(lambda: harness.broker.depth(queue).unacked == 1)
    harness.agent("a")
    answer = harness.receive(REPLY)
    assert isinstance(answer, Allocated)
    assert answer.agents == ["a"]
    harness.until(lambda: harness.broker.depth(queue).unacked == 0)


def test_a_batch_that_breaks_the_dispatch_costs_only_itself(
    harness: CenterHarness, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = harness.agent("a")
    harness.allocate(run)
    assert isinstance(harness.receive(queue), AllocateDownloader)
    gate = harness.center.gate
    passes = gate.passes

    def broken(entry: Any, hosts: Any) -> bool:
        if "broken.test" in hosts:
            raise RuntimeError("a defect")
        return passes(entry, hosts)

    monkeypatch.setattr(gate, "passes", broken)
    for host in ("127.0.0.1", "broken.test", "127.0.0.1"):
        harness.download(run, host=host)
    assert harness.refused() == "RuntimeError: a defect"
    got = 0
    while got < 40:
        command = harness.receive(queue)
        assert isinstance(command, DownloadCommand)
        got += len(command.items)
    entry = harness.center.runs.get(run.pk)
    assert entry is not None
    assert (entry.counters["received"], entry.counters["dispatched"]) == (40, 40)
