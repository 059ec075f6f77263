"""Events of errors in logs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.alerts.models import Incident, Notice, SourceMark
from apps.alerts.states import NoticeKind
from apps.joblogs.models import ErrorGroup
from apps.joblogs.states import GroupState
from apps.jobs.models import Job, Run, RunMove
from tests.alerts.factories import make_channel
from tests.alerts.monitor_harness import Rig, use_rules
from tests.alerts.test_sources import now as now
from tests.alerts.test_sources import since as since
from tests.jobs.factories import make_job, make_run
from yardkit.clock import ManualClock

pytestmark = pytest.mark.django_db


def new_error(job: Job, **fields: Any) -> ErrorGroup:
    at = timezone.now()
    values: dict[str, Any] = {
        "project": job.project,
        "job": job,
        "level": "ERROR",
        "fingerprint": "a",
        "sample": "no price",
        "first_at": at,
        "last_at": at,
        "noted_at": at,
    }
    return ErrorGroup.objects.create(**(values | fields))


def test_a_new_kind_of_error() -> None:
    job = make_job()
    new_error(job)
    new_error(job, fingerprint="b", state=GroupState.IGNORED)
    (found,) = since("log.new_error")
    assert (found.key, found.facts["error"]) == (f"job:{job.pk}", "no price")
    assert found.address == reverse("joblogs:errors")


@pytest.mark.slow("1 s")
def test_a_new_error_that_ends_its_run_opens_no_second_incident() -> None:
    rig = Rig(clock=ManualClock(timezone.now() - timedelta(seconds=10)))
    rig.run(5)
    job = make_job()
    failed, active = make_run(job=job, state="failed"), make_run(job=job, state="running")
    new_error(job, first_run=failed)
    new_error(job, fingerprint="b", first_run=active)
    RunMove.objects.create(run=failed, at=timezone.now(), to_state="failed")
    rig.run(10)
    assert Incident.objects.get().source == "run.failed"
    # The other run continues: after 15 s its error opens its own incident.
    earlier = timezone.now() - timedelta(seconds=16)
    ErrorGroup.objects.filter(first_run=active).update(noted_at=earlier)
    SourceMark.objects.update(began_at=timezone.now() - timedelta(seconds=30))
    rig.run(5)
    assert sorted(Incident.objects.values_list("source", flat=True)) == [
        "log.new_error",
        "run.failed",
    ]


@pytest.mark.slow("1 s")
def test_a_failed_runs_new_error_is_reported_where_failures_are_not() -> None:
    use_rules({"name": "run failed", "enabled": False}, builtin=True)
    rig = Rig(clock=ManualClock(timezone.now() - timedelta(seconds=10)))
    rig.run(5)
    run = make_run(state="failed")
    new_error(run.job, first_run=run)
    RunMove.objects.create(run=run, at=timezone.now(), to_state="failed")
    rig.run(10)
    assert Incident.objects.get().source == "log.new_error"


@pytest.mark.covers("UX.6")
@pytest.mark.slow("1 s")
def test_a_run_that_fails_later_takes_over_the_incident_of_its_error() -> None:
    use_rules(builtin=True, defaults={"tell": ["ops"]})
    make_channel(name="ops")
    rig = Rig(clock=ManualClock(timezone.now() - timedelta(seconds=10)))
    rig.run(5)
    run = make_run(state="running")
    new_error(run.job, first_run=run)
    earlier = timezone.now() - timedelta(seconds=16)
    ErrorGroup.objects.update(noted_at=earlier)
    SourceMark.objects.update(began_at=timezone.now() - timedelta(seconds=30))
    rig.run(5)
    assert Incident.objects.open().get().source == "log.new_error"
    Run.objects.filter(pk=run.pk).update(state="failed", ended_at=timezone.now())
    RunMove.objects.create(run=run, at=timezone.now(), to_state="failed")
    rig.run(10)
    assert Incident.objects.open().get().source == "run.failed"
    assert Notice.objects.filter(kind=NoticeKind.RECOVERED).count() == 0
