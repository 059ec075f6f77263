"""The statistics consumer on a real broker file, when the world around it fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.db import DatabaseError
from django.utils import timezone

from apps.agents.models import AgentSample
from apps.jobs.models import Run
from apps.queuestats.daemon import BATCH, StatisticsDaemon
from apps.queuestats.queries import run_totals
from apps.runtime.models import DeadLetter
from tests.agents.factories import make_agent
from tests.jobs.factories import make_run
from tests.outages import tables_away
from tests.plugins.measurements import Measured
from yardkit import failpoints, topology
from yardkit.broker import Broker, BrokerError, Outgoing, Subscription
from yardkit.clock import SystemClock
from yardkit.failpoints import FailpointError
from yardkit.protocol import AnyMessage, RunCounters, RunQueued, encode

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def daemon(broker: Broker) -> Iterator[StatisticsDaemon]:
    daemon = StatisticsDaemon(broker=broker, clock=SystemClock())
    daemon.setup()
    yield daemon
    daemon.teardown()
    failpoints.configure({})


@pytest.fixture
def run() -> Run:
    return make_run()


def send(broker: Broker, *messages: AnyMessage | bytes) -> None:
    bodies = [one if isinstance(one, bytes) else encode(one) for one in messages]
    broker.publish([Outgoing(body=body, key=topology.STATISTICS.name) for body in bodies]).result(9)


def report(run: Run, seq: int) -> RunCounters:
    return RunCounters(run=run.pk, boot="b1", seq=seq, total=seq)


def until(daemon: StatisticsDaemon, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        daemon.step()


def total(run: Run) -> int:
    return run_totals([run.owner])[run.owner].total


@pytest.mark.fault
def test_what_comes_while_the_database_is_away_is_counted_when_it_is_back(
    daemon: StatisticsDaemon, broker: Broker, run: Run
) -> None:
    # More than it may hold unacknowledged at once.
    count = 2 * BATCH + BATCH // 2
    send(broker, *(report(run, seq) for seq in range(1, count + 1)))
    with tables_away("queuestats_runcounter"):
        for _ in range(6):
            with contextlib.suppress(DatabaseError):
                daemon.step()
    until(daemon, lambda: total(run) == count)
    until(daemon, lambda: broker.depth(topology.STATISTICS.name).unacked == 0)


@pytest.mark.fault
@pytest.mark.parametrize("point", ["queuestats.before_commit", "queuestats.before_ack"])
def test_a_defect_between_taking_and_acknowledging_loses_nothing(
    daemon: StatisticsDaemon, broker: Broker, run: Run, point: str, measured: Measured
) -> None:
    failpoints.configure({"FAILPOINTS": f"{point}=raise@1"})
    send(broker, report(run, 7))
    # What fails before its commit is tried again at once.
    if point != "queuestats.before_commit":
        with pytest.raises(FailpointError):
            until(daemon, lambda: False)
    until(daemon, lambda: total(run) >= 7)
    until(daemon, lambda: broker.depth(topology.STATISTICS.name).unacked == 0)
    counted = total(run)
    measured(of=7, lost=max(7 - counted, 0), twice=max(counted - 7, 0))
    assert counted == 7


def test_rubbish_becomes_dead_letters_with_reasons_and_the_rest_is_counted(
    daemon: StatisticsDaemon, broker: Broker, run: Run
) -> None:
    impossible = RunCounters(run=run.pk, boot="b2", seq=1, total=2**63)
    unknown = RunCounters(run=987654, boot="b1", seq=1)
    send(broker, b"rubbish", RunQueued(run=run.pk), impossible, unknown, report(run, 3))
    until(daemon, lambda: DeadLetter.objects.count() == 4)
    reasons = sorted(DeadLetter.objects.values_list("reason", flat=True))
    words = [
        "OverflowError",
        "RunQueued is not a counter report",
        "not a message",
        "does not exist",
    ]
    for reason, word in zip(reasons, words, strict=True):
        assert word in reason
    assert total(run) == 3


@pytest.mark.fault
def test_dead_letters_outlive_a_database_that_is_away(
    daemon: StatisticsDaemon, broker: Broker
) -> None:
    with tables_away("runtime_deadletter"):
        send(broker, *(b"rubbish" for _ in range(60)))
        for _ in range(20):
            with contextlib.suppress(DatabaseError):
                daemon.step()
    until(daemon, lambda: DeadLetter.objects.count() == 60)


@pytest.mark.fault
def test_a_setup_that_is_tried_again_leaves_no_consumer_behind(
    daemon: StatisticsDaemon, broker: Broker
) -> None:
    daemon.setup()
    assert broker.depth(topology.STATISTICS.name).consumers == 1


def test_at_its_end_it_counts_what_has_come(
    daemon: StatisticsDaemon, broker: Broker, run: Run
) -> None:
    send(broker, report(run, 1), b"rubbish", report(run, 2))
    daemon.teardown()
    assert total(run) == 2
    depth = broker.depth(topology.STATISTICS.name)
    assert (depth.ready, depth.unacked) == (0, 0)


@pytest.mark.fault
def test_at_its_end_what_cannot_be_counted_goes_back(
    daemon: StatisticsDaemon, broker: Broker, run: Run
) -> None:
    send(broker, report(run, 1))
    with tables_away("queuestats_runcounter"):
        daemon.teardown()
    assert broker.depth(topology.STATISTICS.name).ready == 1


def test_an_end_after_half_a_setup_lets_go_of_what_there_is(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_broker: Broker) -> Subscription:
        raise BrokerError("no such queue")

    monkeypatch.setattr("apps.queuestats.daemon.subscribe_dead_letters", refuse)
    daemon = StatisticsDaemon(broker=broker, clock=SystemClock())
    with pytest.raises(BrokerError):
        daemon.setup()
    daemon.teardown()
    assert broker.depth(topology.STATISTICS.name).consumers == 0


def test_an_end_before_the_beginning_is_quiet(broker: Broker) -> None:
    StatisticsDaemon(broker=broker, clock=SystemClock()).teardown()


def test_old_samples_of_agents_are_forgotten_by_the_housekeeping(daemon: StatisticsDaemon) -> None:
    now = timezone.now()
    for hours in (1, 25):
        AgentSample.objects.create(
            agent=make_agent(),
            at=now - timedelta(hours=hours),
            cpu_percent=1,
            free_memory_bytes=1,
            downloaders=1,
            qps=1,
        )
    until(daemon, lambda: AgentSample.objects.count() == 1)
    assert AgentSample.objects.get().at == now - timedelta(hours=1)
