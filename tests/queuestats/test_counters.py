"""A process counts; run_statistics stores it, on a real broker file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from django.test import override_settings

from apps.queuestats.daemon import StatisticsDaemon
from apps.queuestats.models import Sample, SampleSender
from apps.queuestats.services import rates as service
from apps.runtime.models import DeadLetter
from apps.runtime.services import close_shared_broker, shared_broker
from tests.access.factories import make_project
from tests.plugins.measurements import Measured
from tests.queuestats.factories import flush_rates
from yardkit import failpoints, topology
from yardkit.broker import BrokerClosed, Outgoing
from yardkit.clock import SystemClock
from yardkit.failpoints import FailpointError
from yardkit.protocol import SampleNote, Samples, encode

pytestmark = pytest.mark.django_db(transaction=True)

CREATED = "requests.created"


@pytest.fixture(autouse=True)
def own_broker(sqlite_broker_url: str) -> Iterator[None]:
    with override_settings(BROKER_URL=sqlite_broker_url):
        service._reset()
        yield
        service._reset()
        close_shared_broker()


@pytest.fixture
def daemon() -> Iterator[StatisticsDaemon]:
    daemon = StatisticsDaemon(broker=shared_broker(), clock=SystemClock())
    daemon.setup()
    yield daemon
    daemon.teardown()
    failpoints.configure({})


def stored() -> float:
    return sum(
        Sample.objects.filter(step=3600, series__name=CREATED).values_list("value", flat=True)
    )


def until(daemon: StatisticsDaemon, wanted: float) -> None:
    deadline = time.monotonic() + 20
    while stored() != wanted:
        assert time.monotonic() < deadline, stored()
        daemon.step()


@pytest.mark.slow("1 s")
@pytest.mark.covers("S4.24", "S4.25")
def test_what_is_counted_is_stored_by_itself(daemon: StatisticsDaemon) -> None:
    project = make_project()
    for _ in range(5):
        service.count(CREATED, project=project.pk, label="news", amount=200)
    until(daemon, 1000)
    deadline = time.monotonic() + 10
    while not service._reporter.idle:
        assert time.monotonic() < deadline, "nothing to report, and the thread is awake"
        time.sleep(0.01)
    service.count(CREATED, project=project.pk, label="news", amount=1)
    until(daemon, 1001)
    assert Sample.objects.filter(series__name="statistics.heard", step=1).exists()


def test_the_last_words_of_a_process_are_heard(daemon: StatisticsDaemon) -> None:
    project = make_project()
    service.count(CREATED, project=project.pk, label="news", amount=7)
    daemon.teardown()
    close_shared_broker()
    daemon.broker = shared_broker()
    daemon.setup()
    until(daemon, 7)


@pytest.mark.fault
def test_a_report_that_was_stored_and_not_acknowledged_adds_nothing(
    daemon: StatisticsDaemon, measured: Measured
) -> None:
    project = make_project()
    service.count(CREATED, project=project.pk, label="news", amount=7)
    assert flush_rates()
    failpoints.configure({"FAILPOINTS": "queuestats.before_ack=raise@1"})
    with pytest.raises(FailpointError):
        until(daemon, -1)
    failpoints.configure({"FAILPOINTS": "queuestats.before_commit=raise@1"})
    service.count(CREATED, project=project.pk, label="news", amount=3)
    assert flush_rates()
    # What fails before its commit is tried again at once.
    until(daemon, 10)
    counted = stored()
    measured(of=10, lost=max(10 - int(counted), 0), twice=max(int(counted) - 10, 0))
    assert SampleSender.objects.get().missing == []


def test_a_report_that_cannot_be_stored_is_a_dead_letter(daemon: StatisticsDaemon) -> None:
    bad = Samples(
        sender="x", boot="b", seq=1, sent_at=1.0, samples=[SampleNote(5, 7, CREATED, 0, "", 1.0)]
    )
    shared_broker().publish([Outgoing(body=encode(bad), key=topology.STATISTICS.name)]).result(9)
    deadline = time.monotonic() + 20
    while not DeadLetter.objects.exists():
        assert time.monotonic() < deadline
        daemon.step()
    assert "invalid time" in DeadLetter.objects.get().reason


@pytest.mark.fault
def test_an_outage_of_the_broker_delays_and_loses_nothing() -> None:
    project = make_project()
    with override_settings(BROKER_URL="amqp://guest@127.0.0.1:1/"):
        service.count(CREATED, project=project.pk, label="news", amount=7)
        assert not flush_rates(0.5)
        service._report()
    assert service._reporter.rates.waiting
    deadline = time.monotonic() + 10
    while not flush_rates(2.0):
        assert time.monotonic() < deadline
    while True:
        daemon = StatisticsDaemon(broker=shared_broker(), clock=SystemClock())
        try:
            daemon.setup()
            break
        except BrokerClosed:
            # By the reporting thread, whose try at the other address is not over yet.
            assert time.monotonic() < deadline
    until(daemon, 7)
    daemon.teardown()


@pytest.mark.fault
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_reports_only_what_it_has_counted_itself() -> None:
    service._reset()
    service._reporter.rates.add(CREATED, 7, "news", 5)
    parent = service._reporter.rates.boot
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:  # pragma: no cover - another process
        service._reporter.rates.add(CREATED, 7, "news", 2)
        mine = service._reporter.rates.reports(ending=True)
        os.write(writing, f"{_total(mine)} {mine[0].boot != parent}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert told.read() == "2.0 True"
    assert _total(service._reporter.rates.reports(ending=True)) == 5
    service._reset()


def _total(messages: list[Samples]) -> float:
    return sum(note.value for message in messages for note in message.samples)
