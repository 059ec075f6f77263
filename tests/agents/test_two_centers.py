"""Two centers at once, and what the centers do every 15 s."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.utils import timezone

from apps.agents.daemon import CenterDaemon
from apps.agents.models import Agent, Allocation
from apps.jobs.models import Run
from apps.jobs.states import RunState
from tests.agents.center_harness import REPLY, CenterHarness
from tests.agents.factories import make_allocation
from yardkit import topology
from yardkit.broker import Outgoing
from yardkit.protocol import (
    AllocateDownloader,
    CenterCounters,
    DownloadCommand,
    Heartbeat,
    Policy,
    Register,
    ReleaseDownloader,
    Skipped,
    encode,
)

pytestmark = pytest.mark.django_db(transaction=True)


def beat(harness: CenterHarness, agent: str) -> None:
    """A heartbeat, to all centers."""
    message = Heartbeat(
        agent=agent,
        name=agent,
        boot="1",
        total_memory_bytes=1,
        free_memory_bytes=1,
        cpu_percent=0.0,
        downloaders=0,
        qps=0.0,
    )
    outgoing = Outgoing(body=encode(message), key="", exchange=topology.HEARTBEATS)
    harness.broker.publish([outgoing]).result(10)


def counted(center: CenterDaemon, run: Run, name: str) -> int:
    entry = center.runs.get(run.pk)
    return entry.counters[name] if entry else 0


@pytest.fixture
def both(harness: CenterHarness) -> Callable[[str, Run], int]:
    """What both centers have counted together."""
    second = harness.second()
    return lambda name, run: counted(harness.center, run, name) + counted(second, run, name)


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.48")
def test_both_know_the_agents_and_what_both_count_adds_up(
    harness: CenterHarness, run: Run, both: Callable[[str, Run], int]
) -> None:
    harness.agent("a")
    beat(harness, "a")
    harness.until(lambda: all(c.liveness.is_alive("a") for c in (harness.center, *harness.others)))
    harness.allocate(run)
    for _ in range(20):
        harness.download(run)
    harness.until(lambda: both("received", run) == 400)
    assert both("dispatched", run) == 400
    reported: dict[str, CenterCounters] = {}
    while sum(one.received for one in reported.values()) < 400:
        counters = harness.receive(topology.STATISTICS.name)
        assert isinstance(counters, CenterCounters)
        reported[counters.boot] = counters
    for one in reported.values():
        parts = one.dispatched + one.skipped + one.expired + one.refused + one.held
        assert one.received == parts


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.48")
@pytest.mark.parametrize("gone", [0, 1])
def test_one_is_gone_and_nothing_changes(harness: CenterHarness, run: Run, gone: int) -> None:
    centers = [harness.center, harness.second()]
    queue = harness.agent("a")
    beat(harness, "a")
    harness.until(lambda: all(center.liveness.is_alive("a") for center in centers))
    harness.allocate(run)
    assert isinstance(harness.receive(queue), AllocateDownloader)
    centers.pop(gone).teardown()
    harness.center, harness.others = centers[0], []
    for _ in range(5):
        harness.download(run)
        command = harness.receive(queue)
        assert isinstance(command, DownloadCommand)
        assert len(command.items) == 20


@pytest.mark.covers("S1.36", "S1.59")
def test_the_agents_are_told_the_policy_and_only_the_chosen_ones(
    harness: CenterHarness, run: Run
) -> None:
    queues = {name: harness.agent(name) for name in ("a", "b", "c")}
    answer = harness.allocate(run, policy=Policy.CHAINED, agents=1)
    (chosen,) = answer.agents
    command = harness.receive(queues.pop(chosen))
    assert isinstance(command, AllocateDownloader)
    assert command.policy == Policy.CHAINED
    assert command.allocated_at > 0
    assert [harness.broker.depth(queue).ready for queue in queues.values()] == [0, 0]


@pytest.mark.covers("S1.39", "S1.49")
def test_a_chained_request_whose_agent_died_is_skipped_and_counted(
    harness: CenterHarness, run: Run
) -> None:
    harness.agent("a")
    harness.agent("b")
    harness.allocate(run, policy=Policy.CHAINED, agents=2)
    harness.silence("b")
    harness.download(run, agent="b")
    answer = harness.receive(REPLY)
    assert isinstance(answer, Skipped)
    assert answer.reason == "the agent that a chained request belongs to is gone"
    assert len(answer.items) == 20
    assert (counted(harness.center, run, "received"), counted(harness.center, run, "skipped")) == (
        20,
        20,
    )


@pytest.mark.covers("S1.40")
def test_with_no_living_agent_the_run_is_told_at_once(harness: CenterHarness, run: Run) -> None:
    harness.agent("a")
    harness.allocate(run)
    harness.silence("a")
    harness.download(run)
    answer = harness.receive(REPLY)
    assert isinstance(answer, Skipped)
    assert answer.reason == "none of the run's agents is alive"
    assert counted(harness.center, run, "skipped") == 20


@pytest.mark.covers("S1.37", "S1.59")
def test_every_15_seconds_allocations_of_ended_runs_are_given_back(
    harness: CenterHarness, run: Run
) -> None:
    queue = harness.agent("a")
    allocation = make_allocation(run, Agent.objects.get(agent_id="a"))
    Run.objects.filter(pk=run.pk).update(state=RunState.FAILED, ended_at=timezone.now())
    harness.center._timers.hasten("sweep")
    harness.until(lambda: not Allocation.objects.open().filter(pk=allocation.pk).exists())
    assert 0 < harness.center._timers.left("sweep") <= 15
    assert harness.receive(queue) == ReleaseDownloader(run=run.pk)


@pytest.mark.covers("S1.46")
def test_a_registration_is_read_whatever_its_age(harness: CenterHarness) -> None:
    harness.center.teardown()
    message = Register(agent="old", name="old", boot="1", processors=1, total_memory_bytes=1)
    harness.send(topology.CENTER_REGISTER.name, message)
    # Nothing in the queue or the message can make it too old, however long no center runs.
    assert topology.CENTER_REGISTER.message_ttl_seconds is None
    assert topology.CENTER_REGISTER.expires_seconds is None
    harness.restart()
    harness.until(Agent.objects.filter(agent_id="old").exists)
