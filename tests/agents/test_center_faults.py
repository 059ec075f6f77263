"""The center when the world around it fails: nothing is lost, and it goes on by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from apps.agents.center.runs import RunEntry
from apps.agents.center.threads import CenterThreadDied
from apps.agents.models import Agent
from apps.agents.services import register_agent
from apps.jobs.models import Run
from apps.jobs.states import RunState
from tests.agents.center_harness import REPLY, CenterHarness
from tests.agents.factories import make_allocation
from tests.jobs.factories import make_run
from tests.outages import tables_away
from tests.plugins.measurements import Measured
from yardkit import failpoints, topology
from yardkit.broker import Delivery, Outgoing
from yardkit.protocol import (
    Allocate,
    AllocateDownloader,
    CenterCounters,
    DownloadCommand,
    Register,
    Skipped,
    encode,
)
from yardkit.tokens import sign_run_token

pytestmark = pytest.mark.django_db(transaction=True)

# Of what the center looks at all the time.
TABLES = ("agents_agent", "agents_allocation")


@pytest.fixture
def failpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    failpoints.configure({})


def registration(number: int) -> Outgoing:
    message = Register(agent=f"a{number}", name="", boot="1", processors=1, total_memory_bytes=1)
    return Outgoing(body=encode(message), key=topology.CENTER_REGISTER.name)


@pytest.mark.fault
@pytest.mark.covers("S1.46")
def test_what_comes_while_the_database_is_away_is_done_when_it_is_back(
    harness: CenterHarness, measured: Measured
) -> None:
    # More than the center may hold unacknowledged at once.
    sent = {f"a{number}" for number in range(120)}
    with tables_away(*TABLES):
        harness.broker.publish([registration(number) for number in range(120)]).result(10)
        for _ in range(40):
            harness.center.step()
    began = time.monotonic()
    harness.until(Agent.objects.exists)
    back = time.monotonic() - began
    harness.until(lambda: Agent.objects.count() == 120)
    harness.until(lambda: harness.broker.depth(topology.CENTER_REGISTER.name).unacked <= 0)
    known = list(Agent.objects.values_list("agent_id", flat=True))
    lost = sent - set(known)
    measured(of=len(sent), lost=len(lost), twice=len(known) - len(set(known)), back_s=back)
    assert not lost


@pytest.mark.fault
def test_a_run_that_asks_for_agents_while_the_database_is_away_gets_them_later(
    harness: CenterHarness, run: Run
) -> None:
    harness.agent("a")
    token = sign_run_token(settings.SECRET_KEY, run.pk)
    with tables_away(*TABLES):
        harness.send(
            topology.CENTER_CONTROL.name, Allocate(run=run.pk, token=token, reply_to=REPLY)
        )
        for _ in range(10):
            harness.center.step()
    answer = harness.receive(REPLY)
    assert answer.agents == ["a"]  # type: ignore[union-attr]


@pytest.mark.fault
def test_known_runs_are_served_while_the_database_is_away_and_others_are_told_why(
    harness: CenterHarness, run: Run
) -> None:
    queue = harness.agent("a")
    harness.allocate(run)
    assert isinstance(harness.receive(queue), AllocateDownloader)
    other = make_run(state=RunState.RUNNING)
    with tables_away(*TABLES):
        harness.download(other)
        answer = harness.receive(REPLY)
        assert isinstance(answer, Skipped)
        assert "cannot look up" in answer.reason
        assert len(answer.items) == 20
        harness.download(run)
        command = harness.receive(queue)
        assert isinstance(command, DownloadCommand)
        assert len(command.items) == 20
    make_allocation(other, Agent.objects.get(agent_id="a"))

    def dispatched() -> bool:
        harness.download(other)
        return isinstance(harness.receive(queue), DownloadCommand)

    harness.until(lambda: harness.center.clock.monotonic() > harness.center.runs._load_at)
    harness.until(dispatched)


@pytest.mark.covers("S1.39", "S1.48")
def test_what_another_center_allocates_or_releases_is_found_out(
    harness: CenterHarness, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.agents.center.runs.LOAD_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr("apps.agents.daemon.REFRESH_SECONDS", 0.0)
    queue = harness.agent("a")
    harness.download(run)
    answer = harness.receive(REPLY)
    assert isinstance(answer, Skipped)
    assert answer.reason == "no agents are allocated to the run"
    allocation = make_allocation(run, Agent.objects.get(agent_id="a"))
    harness.download(run)
    assert isinstance(harness.receive(queue), DownloadCommand)
    later = harness.agent("b")
    register_agent(
        message=Register(agent="b", name="", boot="2", processors=1, total_memory_bytes=1),
        now=timezone.now(),
    )
    assert {agent.agent_id for agent in allocation.agents.all()} == {"a", "b"}
    harness.until(lambda: set(harness.center.runs._entries[run.pk].agents) == {"a", "b"})
    assert later == "agent.b"
    allocation.released_at = timezone.now()
    allocation.save()
    harness.until(lambda: harness.center.runs._entries[run.pk].agents == ())


@pytest.mark.fault
def test_a_center_that_was_restarted_knows_at_once_who_is_alive(
    harness: CenterHarness, run: Run
) -> None:
    queue = harness.agent("a")
    harness.allocate(run)
    assert isinstance(harness.receive(queue), AllocateDownloader)
    harness.restart()
    harness.download(run)
    assert isinstance(harness.receive(queue), DownloadCommand)


@pytest.mark.fault
@pytest.mark.parametrize("point", ["center.registered", "center.allocated"])
def test_a_moments_defect_costs_no_message(
    harness: CenterHarness, run: Run, failpoint: pytest.MonkeyPatch, point: str
) -> None:
    failpoints.configure({"FAILPOINTS": f"{point}=raise@1"})
    queue = harness.agent("a")
    assert harness.allocate(run).agents == ["a"]
    assert isinstance(harness.receive(queue), AllocateDownloader)


@pytest.mark.fault
def test_a_defect_that_stays_makes_a_dead_letter_and_no_crash_loop(
    harness: CenterHarness, run: Run, failpoint: pytest.MonkeyPatch
) -> None:
    failpoints.configure({"FAILPOINTS": "center.registered=raise"})
    harness.broker.publish([registration(1)]).result(10)
    assert harness.refused() == "FailpointError: center.registered"


@pytest.mark.fault
def test_a_thread_that_dies_is_replaced_and_what_it_held_is_not_lost(
    harness: CenterHarness, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = harness.agent("a")
    harness.allocate(run)
    assert isinstance(harness.receive(queue), AllocateDownloader)
    subscription = harness.center.dispatcher._subscription
    assert subscription is not None
    take, called = subscription.take, threading.Event()

    def fail(*arguments: Any, **named: Any) -> list[Delivery]:
        called.set()
        if take(*arguments, **named):
            raise ZeroDivisionError("a defect")
        return []

    monkeypatch.setattr(subscription, "take", fail)
    assert called.wait(10), "the thread still waits in the call before"
    harness.download(run)
    with pytest.raises(CenterThreadDied, match="a defect"):
        harness.until(lambda: False)
    assert isinstance(harness.receive(queue), DownloadCommand)


def test_no_token_is_no_token(harness: CenterHarness, run: Run) -> None:
    harness.agent("a")
    harness.allocate(run)
    harness.download(run, token="")
    assert "token" in harness.refused()


@pytest.mark.parametrize("reply_to", ["", "q" * 256])
def test_an_answer_that_could_go_nowhere_is_refused(
    harness: CenterHarness, run: Run, reply_to: str
) -> None:
    harness.agent("a")
    harness.download(run, reply_to=reply_to)
    assert "cannot name a queue" in harness.refused()
    token = sign_run_token(settings.SECRET_KEY, run.pk)
    message = Allocate(run=run.pk, token=token, reply_to=reply_to)
    harness.send(topology.CENTER_CONTROL.name, message)
    assert "cannot name a queue" in harness.refused()
    assert harness.allocate(run).agents == ["a"]


@pytest.mark.parametrize("agent", ["", "a/b", "a" * 65])
def test_an_agent_without_a_usable_id_is_refused(harness: CenterHarness, agent: str) -> None:
    message = Register(agent=agent, name="", boot="1", processors=1, total_memory_bytes=1)
    harness.send(topology.CENTER_REGISTER.name, message)
    assert "is no id of an agent" in harness.refused()


def dispatched(harness: CenterHarness, run: Run) -> RunEntry:
    """What the center counts of a run, once it has dispatched 20 requests of it."""
    runs = harness.center.runs
    harness.download(run)
    harness.until(lambda: run.pk in runs._entries)
    entry = runs._entries[run.pk]
    harness.until(lambda: entry.counters["dispatched"] == 20)
    return entry


def test_counters_of_a_run_that_was_forgotten_start_under_a_new_name(
    harness: CenterHarness, run: Run
) -> None:
    harness.agent("a")
    harness.allocate(run)
    first = dispatched(harness, run)
    harness.center.runs.drain_counters()
    harness.center.runs.forget_idle(-1.0)
    assert harness.center.runs.known() == []
    assert dispatched(harness, run).incarnation != first.incarnation


def test_counters_that_did_not_arrive_are_reported_again(harness: CenterHarness, run: Run) -> None:
    runs = harness.center.runs
    harness.agent("a")
    harness.allocate(run)
    entry = dispatched(harness, run)
    runs.drain_counters()
    assert runs.drain_counters() == []
    runs.report_again([CenterCounters(run=run.pk, boot=entry.incarnation, seq=entry.seq)])
    seq = entry.seq
    (again,) = runs.drain_counters()
    assert (again.boot, again.seq, again.dispatched) == (entry.incarnation, seq + 1, 20)
