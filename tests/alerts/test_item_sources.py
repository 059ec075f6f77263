"""Events of rejected items and failed checks, and of items that wait to be stored."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.alerts.engine.rules import builtin_rules
from apps.datasets.models import DatasetRun
from apps.datasets.services.datasets import dataset_of_job
from apps.jobs.models import Job, Run
from tests.alerts.test_sources import over, since
from tests.jobs.factories import make_job, make_project, make_run
from yardkit import metrics

pytestmark = pytest.mark.django_db

FAILED = {"check": "items_at_least", "ok": False, "text": "3 items, at least 10 expected"}
PASSED = {"check": "range", "ok": True, "text": "price lies between 1 and 2"}


def settled(job: Job, seconds_ago: float = 5, **fields: Any) -> DatasetRun:
    """The data of a new run of this job."""
    return DatasetRun.objects.create(
        dataset=dataset_of_job(job),
        run_number=make_run(job=job).pk,
        settled_at=timezone.now() - timedelta(seconds=seconds_ago),
        **fields,
    )


@pytest.mark.covers("DS.9")
def test_rejected_items_of_a_run() -> None:
    job = make_job()
    row = settled(job, rejected=5, stored=7, reasons={"price: type": 4, "url: required": 1})
    settled(job, seconds_ago=3600, rejected=1)
    settled(make_job())
    (found,) = since("items.rejected")
    assert (found.id, found.key) == (f"run:{row.run_number}", f"job:{job.pk}")
    assert found.project == job.project_id
    assert found.facts == {
        "job": job.name,
        "run": row.run_number,
        "rejected": 5,
        "stored": 7,
        "reason": "price: type",
    }
    assert found.address == f"/admin/jobs/run/{row.run_number}/change/"


@pytest.mark.covers("DS.9")
def test_a_failed_check_of_a_run() -> None:
    job = make_job()
    settled(job, checked=[PASSED])
    row = settled(job, checked=[PASSED, FAILED, {**FAILED, "check": "change"}])
    (found,) = since("items.check_failed")
    assert (found.key, found.facts["run"]) == (f"job:{job.pk}", row.run_number)
    assert found.facts["check"] == "items_at_least"
    assert (found.facts["reason"], found.facts["failed"]) == (FAILED["text"], 2)


def test_both_are_over_with_a_good_run() -> None:
    job, other = make_job(), make_job()
    keys = [f"job:{job.pk}", f"job:{other.pk}"]
    for bad in (job, other):
        settled(bad, rejected=5, checked=[FAILED])
    assert over("items.rejected", *keys) == over("items.check_failed", *keys) == set()
    settled(job, checked=[PASSED])
    assert over("items.rejected", *keys) == over("items.check_failed", *keys) == {keys[0]}
    # One that has not settled says nothing yet.
    DatasetRun.objects.filter(dataset__origin_id=job.pk).update(settled_at=None)
    assert over("items.rejected", *keys) == set()


def test_data_of_a_deleted_job_and_of_producers_without_runs_are_no_events() -> None:
    job = make_job(project=make_project())
    settled(job, rejected=5, checked=[FAILED])
    row = settled(make_job(), rejected=5, checked=[FAILED])
    row.dataset.origin = "biz"
    row.dataset.save()
    Run.objects.filter(job=job).delete()
    job.delete()
    assert since("items.rejected") == since("items.check_failed") == []


def test_the_builtin_rules_of_backlogs_name_series_that_exist() -> None:
    rules = {rule.name: rule for rule in builtin_rules()}
    known = {metric.name for metric in metrics.described()}
    for name in ("items waiting", "items not moved"):
        assert rules[name].series in known
