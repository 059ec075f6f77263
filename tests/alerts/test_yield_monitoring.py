"""The monitor records yields; anomalies open incidents that recover."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.alerts import daemon
from apps.alerts.management.commands.run_monitor import Command
from apps.alerts.models import Incident
from apps.alerts.services.texts import sentence
from apps.alerts.states import IncidentState
from apps.jobs.models import Job
from apps.runtime.daemon import Identity
from tests.alerts.factories import NOW
from tests.alerts.monitor_harness import Rig
from tests.alerts.yields import daily_runs, ended_run
from tests.jobs.factories import make_job
from yardkit.broker import Broker

pytestmark = pytest.mark.django_db


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, broker: Broker) -> Rig:
    """Monitor with the periodic tasks of the command."""
    monkeypatch.setattr(daemon, "_monitor_tasks", {})
    command = Command()
    command.identity = Identity("monitor", "one")
    command.make_daemon({}, broker)
    return Rig()


@pytest.fixture
def job() -> Job:
    job = make_job(name="news")
    daily_runs(job, until=NOW, days=10, fields={"url": 1000, "price": 990})
    return job


def open_ones() -> dict[str, str]:
    return {row.rule: sentence(row) for row in Incident.objects.filter(state=IncidentState.OPEN)}


@pytest.mark.slow("10 s")
def test_a_drop_opens_an_incident_that_the_next_usual_run_ends(rig: Rig, job: Job) -> None:
    bad = ended_run(job, at=rig.now(), items=50, fields={"url": 50, "price": 10}, failed=100)
    rig.run(10)
    found = open_ones()
    assert found["yield dropped"] == f"job news: run {bad.pk} returned 50 items, usually 1,000"
    assert found["fields left empty"] == (
        f"job news: price has a value in 20 % of the items of run {bad.pk}, usually in 99 %"
    )
    assert found["requests fail"] == f"job news: 100 of 200 requests of run {bad.pk} failed"
    incident = Incident.objects.get(rule="yield dropped")
    assert (incident.project_id, incident.key) == (job.project_id, f"job:{job.pk}")
    assert incident.address.endswith("#yields")
    ended_run(job, at=rig.now(), fields={"url": 1000, "price": 990})
    rig.run(120)
    assert not {"yield dropped", "fields left empty", "requests fail"} & set(open_ones())


@pytest.mark.slow("2 s")
def test_a_job_that_brings_nothing_any_more_opens_one(rig: Rig) -> None:
    job = make_job(name="news")
    daily_runs(job, until=NOW, days=10, trigger="link")
    rig.clock.advance(timedelta(days=5).total_seconds())
    last = job.yields.latest("ended_at").run
    rig.run(10)
    assert open_ones()["nothing new"] == f"job news: no new items since run {last}"
