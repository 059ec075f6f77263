"""Registration, heartbeats and allocation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.core.exceptions import ValidationError

from apps.agents.errors import AllocationRefused
from apps.agents.models import Agent, Allocation
from apps.agents.queries import (
    joinable,
    late_joins,
    newest_allocation,
    open_allocation,
    open_allocations,
)
from apps.agents.services import (
    allocate,
    downloader_settings,
    register_agent,
    release,
    release_ended,
    store_heartbeats,
)
from apps.agents.states import AgentMode, is_alive
from apps.jobs.services import finish_run
from apps.jobs.states import RunState
from tests.jobs.factories import NOW, make_job, make_project, make_run
from yardkit.protocol import Allocate, DownloaderSettings, Heartbeat, Policy, Register

pytestmark = pytest.mark.django_db


def agents_of(owner: str) -> list[Agent]:
    allocation = newest_allocation(owner)
    assert allocation is not None
    return list(allocation.agents.all())


def registration(agent: str, boot: str = "1") -> Register:
    return Register(agent=agent, name=agent, boot=boot, processors=2, total_memory_bytes=4 << 30)


def heartbeat(agent: str, qps: float = 1.5) -> Heartbeat:
    return Heartbeat(
        agent=agent,
        name=agent,
        boot="1",
        total_memory_bytes=4 << 30,
        free_memory_bytes=1 << 30,
        cpu_percent=12.5,
        downloaders=3,
        qps=qps,
        labels={"zone": "north"},
    )


def make_agents(*names: str) -> None:
    for name in names:
        register_agent(message=registration(name), now=NOW)


def request(run: int, **fields: object) -> Allocate:
    values: dict[str, object] = {"run": run, "token": "t", "reply_to": f"run.{run}.b1"}
    return Allocate(**(values | fields))  # type: ignore[arg-type]


@pytest.mark.covers("S1.20", "S1.21")
def test_registration_and_heartbeats_keep_what_the_agent_reports() -> None:
    make_agents("a")
    later = NOW + timedelta(seconds=5)
    store_heartbeats(latest=[heartbeat("a"), heartbeat("unknown", qps=9.0)], now=later)
    agent = Agent.objects.get(agent_id="a")
    assert (agent.cpu_percent, agent.downloaders, agent.qps) == (12.5, 3, 1.5)
    assert agent.free_memory_bytes == 1 << 30
    assert (agent.registered_at, agent.heartbeat_at) == (NOW, later)
    assert Agent.objects.get(agent_id="unknown").qps == 9.0


@pytest.mark.covers("S1.38")
def test_alive_means_heard_of_less_than_eleven_seconds_ago() -> None:
    assert is_alive(NOW, NOW + timedelta(seconds=10.9))
    assert not is_alive(NOW, NOW + timedelta(seconds=11))
    assert not is_alive(None, NOW)
    make_agents("a")
    assert Agent.objects.alive(NOW + timedelta(seconds=10)).count() == 1
    assert Agent.objects.alive(NOW + timedelta(seconds=11)).count() == 0


@pytest.mark.covers("S1.16", "S1.35")
def test_allocation_is_recorded_with_living_enabled_agents_only() -> None:
    make_agents("a", "b", "off", "dead")
    Agent.objects.filter(agent_id="off").update(mode=AgentMode.DISABLED)
    run = make_run(state=RunState.RUNNING)
    allocation = allocate(message=request(run.pk), alive=["a", "b", "off"], now=NOW)
    assert {agent.agent_id for agent in allocation.agents.all()} == {"a", "b"}
    assert {agent.agent_id for agent in agents_of(run.owner)} == {"a", "b"}
    found = open_allocation(run.pk)
    assert found is not None
    assert set(found.agents) == {"a", "b"}


def test_the_allocations_of_many_runs_are_read_together(
    django_assert_num_queries: Callable[[int], AbstractContextManager[object]],
) -> None:
    make_agents("a", "b")
    runs = [make_run(state=RunState.RUNNING).pk for _ in range(5)]
    for run in runs:
        allocate(message=request(run), alive=["a", "b"], now=NOW)
    release(owner=f"run:{runs[0]}", now=NOW)
    with django_assert_num_queries(2):
        found = open_allocations([*runs, 99_999])
    assert sorted(found) == runs[1:]
    assert all(set(one.agents) == {"a", "b"} for one in found.values())
    assert found[runs[1]] == open_allocation(runs[1])


def test_the_networks_come_from_the_project_not_from_the_run() -> None:
    make_agents("a")
    project = make_project(allowed_networks=["10.1.0.0/16"])
    run = make_run(job=make_job(project=project), state=RunState.RUNNING)
    wish = DownloaderSettings(allowed_networks=["0.0.0.0/0"], timeout_seconds=3)
    allocation = allocate(message=request(run.pk, settings=wish), alive=["a"], now=NOW)
    settings = downloader_settings(allocation)
    assert settings.allowed_networks == ["10.1.0.0/16"]
    assert settings.timeout_seconds == 3


def test_the_same_request_again_is_the_same_allocation() -> None:
    make_agents("a")
    run = make_run(state=RunState.RUNNING)
    first = allocate(message=request(run.pk), alive=["a"], now=NOW)
    assert allocate(message=request(run.pk), alive=["a"], now=NOW) == first
    again = allocate(message=request(run.pk, reply_to="run.1.b2"), alive=["a"], now=NOW)
    assert again != first
    assert Allocation.objects.open().get() == again


def test_fewer_agents_than_asked_for_is_a_warning() -> None:
    make_agents("a", "b")
    run = make_run(state=RunState.RUNNING)
    message = request(run.pk, policy=Policy.FIXED, agents=3)
    allocation = allocate(message=message, alive=["a", "b"], now=NOW)
    assert allocation.agents.count() == 2
    assert allocation.warning == "3 agents requested, 2 available"


@pytest.mark.parametrize(
    ("state", "alive", "why"),
    [
        (RunState.RUNNING, [], "no agent available: 1 not alive"),
        (RunState.EXITED, ["a"], "already ended"),
        (None, ["a"], "does not exist"),
    ],
)
def test_a_refused_allocation_says_why_and_writes_nothing(
    state: RunState | None, alive: list[str], why: str
) -> None:
    make_agents("a")
    run = make_run(state=state).pk if state else 99_999
    with pytest.raises(AllocationRefused, match=why):
        allocate(message=request(run), alive=alive, now=NOW)
    assert not Allocation.objects.exists()


def test_an_agent_that_registers_is_told_of_its_open_allocations_each_time() -> None:
    make_agents("a")
    run = make_run(state=RunState.RUNNING)
    allocation = allocate(message=request(run.pk), alive=["a"], now=NOW)
    # The same boot again: the first time may have been cut short between its two halves.
    for boot in ("1", "2"):
        _, serves = register_agent(message=registration("a", boot=boot), now=NOW)
        assert serves == [allocation]
    release(owner=run.owner, now=NOW)
    _, serves = register_agent(message=registration("a", boot="3"), now=NOW)
    assert serves == []


@pytest.mark.covers("S1.36")
def test_an_agent_that_comes_later_joins_the_runs_that_use_every_agent() -> None:
    make_agents("a")
    everywhere, chosen = make_run(state=RunState.RUNNING), make_run(state=RunState.RUNNING)
    allocation = allocate(message=request(everywhere.pk), alive=["a"], now=NOW)
    fixed = request(chosen.pk, policy=Policy.FIXED, agents=1)
    allocate(message=fixed, alive=["a"], now=NOW)
    late, serves = register_agent(message=registration("late"), now=NOW)
    assert serves == [allocation]
    assert [agent.agent_id for agent in agents_of(everywhere.owner)] == ["a", "late"]
    assert [agent.agent_id for agent in agents_of(chosen.owner)] == ["a"]
    assert joinable(late) == []
    Agent.objects.filter(pk=late.pk).update(mode=AgentMode.DRAINING)
    _, serves = register_agent(message=registration("late"), now=NOW)
    assert serves == [allocation]


@pytest.mark.covers("S1.36")
def test_late_agents_of_many_runs_are_found_together(
    django_assert_max_num_queries: Callable[[int], AbstractContextManager[object]],
) -> None:
    make_agents("a")
    runs = [make_run(state=RunState.RUNNING).pk for _ in range(3)]
    for run in runs:
        allocate(message=request(run), alive=["a"], now=NOW)
    # Registered by a center that has not seen the allocations yet.
    for name in ("b", "c", "dead"):
        Agent.objects.create(agent_id=name, registered_at=NOW)
    Allocation.objects.get(owner=f"run:{runs[0]}").agents.add(Agent.objects.get(agent_id="b"))
    with django_assert_max_num_queries(3):
        found = late_joins(["a", "b", "c"], NOW)
    missing = sorted((agent.agent_id, allocation.owner) for agent, allocation in found)
    owners = [f"run:{run}" for run in runs]
    wanted = [("b", one) for one in owners[1:]] + [("c", one) for one in owners]
    assert missing == sorted(wanted)
    assert late_joins(["a", "b", "c"], NOW + timedelta(seconds=1)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"agent": ""},
        {"agent": "no id"},
        {"agent": "a" * 65},
        {"name": "n" * 101},
        {"processors": -1},
        {"total_memory_bytes": 2**63},
    ],
)
def test_a_registration_that_cannot_be_true_is_refused(changes: dict[str, Any]) -> None:
    message = msgspec.structs.replace(registration("a"), **changes)
    with pytest.raises(ValidationError):
        register_agent(message=message, now=NOW)
    assert not Agent.objects.exists()


def test_one_heartbeat_that_cannot_be_stored_does_not_take_the_others_with_it() -> None:
    make_agents("a", "b")
    broken = msgspec.structs.replace(heartbeat("a"), free_memory_bytes=2**63)
    later = NOW + timedelta(seconds=5)
    refused = store_heartbeats(latest=[broken, heartbeat("b")], now=later)
    assert list(refused) == ["a"]
    assert Agent.objects.get(agent_id="b").heartbeat_at == later
    assert Agent.objects.get(agent_id="a").heartbeat_at == NOW


@pytest.mark.slow("1 s")
def test_heartbeats_change_only_what_they_carry(
    django_assert_max_num_queries: Callable[[int], AbstractContextManager[object]],
) -> None:
    make_agents("a")
    Agent.objects.filter(agent_id="a").update(mode="disabled")
    pk = Agent.objects.get(agent_id="a").pk
    latest = [heartbeat("a"), *(heartbeat(f"new-{number:03}") for number in range(999))]
    # SQLite may have 999 values in a statement, which are some 60 agents; it is 500 elsewhere.
    # The first of a minute are also kept as samples.
    with django_assert_max_num_queries(60):
        store_heartbeats(latest=latest, now=NOW)
    agent = Agent.objects.get(agent_id="a")
    assert (agent.pk, agent.mode, agent.processors) == (pk, "disabled", 2)
    assert Agent.objects.alive(NOW).count() == 1000


def test_allocations_of_ended_runs_are_released() -> None:
    make_agents("a")
    ended, running = make_run(state=RunState.RUNNING), make_run(state=RunState.RUNNING)
    for run in (ended, running):
        allocate(message=request(run.pk), alive=["a"], now=NOW)
    finish_run(run=ended, state=RunState.FAILED, reason="", now=NOW)
    assert [a.owner for a in release_ended(now=NOW)] == [ended.owner]
    assert [a.owner for a in Allocation.objects.open()] == [running.owner]
