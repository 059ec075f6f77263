"""Two centers at once, and what the centers do every 15 s."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.utils import timezone

from apps.agents.daemon import CenterDaemon
from apps.agents.models import Agent, Allocation
from apps.jobs.models import Run
from apps.jobs.states import RunState
from tests.agents.factories import make_allocation
from tests.agents.yard import REPLY, Yard
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


def beat(yard: Yard, agent: str) -> None:
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
    yard.broker.publish([outgoing]).result(10)


def counted(center: CenterDaemon, run: Run, name: str) -> int:
    entry = center.runs.get(run.pk)
    return entry.counters[name] if entry else 0


@pytest.fixture
def both(yard: Yard) -> Callable[[str, Run], int]:
    """What both centers have counted together."""
    second = yard.second()
    return lambda name, run: counted(yard.center, run, name) + counted(second, run, name)


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.48")
def test_both_know_the_agents_and_what_both_count_adds_up(
    yard: Yard, run: Run, both: Callable[[str, Run], int]
) -> None:
    yard.agent("a")
    beat(yard, "a")
    yard.until(lambda: all(c.liveness.is_alive("a") for c in (yard.center, *yard.others)))
    yard.allocate(run)
    for _ in range(20):
        yard.download(run)
    yard.until(lambda: both("received", run) == 400)
    assert both("dispatched", run) == 400
    reported: dict[str, CenterCounters] = {}
    while sum(one.received for one in reported.values()) < 400:
        counters = yard.receive(topology.STATISTICS.name)
        assert isinstance(counters, CenterCounters)
        reported[counters.boot] = counters
    for one in reported.values():
        parts = one.dispatched + one.skipped + one.expired + one.refused + one.held
        assert one.received == parts


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.48")
@pytest.mark.parametrize("gone", [0, 1])
def test_one_is_gone_and_nothing_changes(yard: Yard, run: Run, gone: int) -> None:
    centers = [yard.center, yard.second()]
    queue = yard.agent("a")
    beat(yard, "a")
    yard.until(lambda: all(center.liveness.is_alive("a") for center in centers))
    yard.allocate(run)
    assert isinstance(yard.receive(queue), AllocateDownloader)
    centers.pop(gone).teardown()
    yard.center, yard.others = centers[0], []
    for _ in range(5):
        yard.download(run)
        command = yard.receive(queue)
        assert isinstance(command, DownloadCommand)
        assert len(command.items) == 20


@pytest.mark.covers("S1.36", "S1.59")
def test_the_agents_are_told_the_policy_and_only_the_chosen_ones(yard: Yard, run: Run) -> None:
    queues = {name: yard.agent(name) for name in ("a", "b", "c")}
    answer = yard.allocate(run, policy=Policy.CHAINED, agents=1)
    (chosen,) = answer.agents
    command = yard.receive(queues.pop(chosen))
    assert isinstance(command, AllocateDownloader)
    assert command.policy == Policy.CHAINED
    assert command.allocated_at > 0
    assert [yard.broker.depth(queue).ready for queue in queues.values()] == [0, 0]


@pytest.mark.covers("S1.39", "S1.49")
def test_a_chained_request_whose_agent_died_is_skipped_and_counted(yard: Yard, run: Run) -> None:
    yard.agent("a")
    yard.agent("b")
    yard.allocate(run, policy=Policy.CHAINED, agents=2)
    yard.silence("b")
    yard.download(run, agent="b")
    answer = yard.receive(REPLY)
    assert isinstance(answer, Skipped)
    assert answer.reason == "the agent that a chained request belongs to is gone"
    assert len(answer.items) == 20
    assert (counted(yard.center, run, "received"), counted(yard.center, run, "skipped")) == (20, 20)


@pytest.mark.covers("S1.40")
def test_with_no_living_agent_the_run_is_told_at_once(yard: Yard, run: Run) -> None:
    yard.agent("a")
    yard.allocate(run)
    yard.silence("a")
    yard.download(run)
    answer = yard.receive(REPLY)
    assert isinstance(answer, Skipped)
    assert answer.reason == "none of the run's agents is alive"
    assert counted(yard.center, run, "skipped") == 20


@pytest.mark.covers("S1.37", "S1.59")
def test_every_15_seconds_allocations_of_ended_runs_are_given_back(yard: Yard, run: Run) -> None:
    queue = yard.agent("a")
    allocation = make_allocation(run, Agent.objects.get(agent_id="a"))
    Run.objects.filter(pk=run.pk).update(state=RunState.FAILED, ended_at=timezone.now())
    yard.center._timers.hasten("sweep")
    yard.until(lambda: not Allocation.objects.open().filter(pk=allocation.pk).exists())
    assert 0 < yard.center._timers.left("sweep") <= 15
    assert yard.receive(queue) == ReleaseDownloader(run=run.pk)


@pytest.mark.covers("S1.46")
def test_a_registration_is_read_whatever_its_age(yard: Yard) -> None:
    yard.center.teardown()
    message = Register(agent="old", name="old", boot="1", processors=1, total_memory_bytes=1)
    yard.send(topology.CENTER_REGISTER.name, message)
    # Nothing in the queue or the message can make it too old, however long no center runs.
    assert topology.CENTER_REGISTER.message_ttl_seconds is None
    assert topology.CENTER_REGISTER.expires_seconds is None
    yard.restart()
    yard.until(Agent.objects.filter(agent_id="old").exists)
