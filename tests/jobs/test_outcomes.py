"""What people are told of a run's end: by its state and by its failed requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from apps.access.states import Role
from apps.jobs.daemon import RunnerDaemon
from apps.jobs.runners.outputs import read_exit
from apps.jobs.states import RunOutcome, RunState, outcome_of
from tests.access.factories import make_user
from tests.jobs.factories import make_job, make_project, make_run
from tests.jobs.runners import start, until
from tests.jobs.test_api import member

S, O = RunState, RunOutcome  # noqa: E741


@pytest.mark.parametrize(
    ("state", "total", "failed", "allowed", "outcome"),
    [
        (S.RUNNING, None, None, 0, None),
        (S.EXITED, None, None, 0, O.SUCCEEDED),
        (S.EXITED, 40, 0, 0, O.SUCCEEDED),
        (S.EXITED, 40, 1, 0, O.FINISHED_WITH_ERRORS),
        (S.EXITED, 40, 10, 25, O.SUCCEEDED),
        (S.EXITED, 39, 10, 25, O.FINISHED_WITH_ERRORS),
        (S.EXITED, 39, 39, 100, O.SUCCEEDED),
        (S.FAILED, 40, 0, 0, O.FAILED),
        (S.LOST, None, None, 0, O.LOST),
        (S.CANCELLED, 40, 40, 0, O.CANCELLED),
    ],
)
def test_failed_requests_beyond_the_limit_are_an_outcome_of_their_own(
    state: RunState, total: int | None, failed: int | None, allowed: float, outcome: RunOutcome
) -> None:
    assert outcome_of(state, total=total, failed=failed, allowed_percent=allowed) == outcome


@pytest.mark.parametrize(
    ("limits", "outcome"),
    [
        ({}, O.SUCCEEDED),
        ({"exceptions": 3}, O.SUCCEEDED),
        ({"exceptions": 3, "allowed_exceptions": 3}, O.SUCCEEDED),
        ({"exceptions": 3, "allowed_exceptions": 2}, O.FINISHED_WITH_ERRORS),
        ({"items": 0}, O.SUCCEEDED),
        ({"items": 9, "least_items": 10}, O.FINISHED_WITH_ERRORS),
        ({"items": 10, "least_items": 10}, O.SUCCEEDED),
        ({"items": None, "least_items": 10}, O.SUCCEEDED),
    ],
)
@pytest.mark.covers("UX.4")
def test_exceptions_and_missing_items_beyond_the_limits_are_errors(
    limits: dict[str, Any], outcome: RunOutcome
) -> None:
    allowed = outcome_of(S.EXITED, total=9, failed=0, allowed_percent=0, **limits)
    assert allowed == outcome
    assert outcome_of(S.FAILED, total=9, failed=0, allowed_percent=0, **limits) == O.FAILED


@pytest.mark.django_db
def test_a_run_of_failed_requests_needs_no_number_of_items() -> None:
    job = make_job(min_items=100)
    whole = make_run(job=job, state=S.EXITED, items=5)
    assert whole.outcome == O.FINISHED_WITH_ERRORS
    assert make_run(job=job, state=S.EXITED, items=5, requests_of=whole).outcome == O.SUCCEEDED


@pytest.mark.covers("DS.9")
@pytest.mark.parametrize(
    ("state", "outcome"), [(S.EXITED, O.FINISHED_WITH_ERRORS), (S.LOST, O.LOST)]
)
def test_a_failed_check_of_its_data_is_an_error_of_the_run(
    state: RunState, outcome: RunOutcome
) -> None:
    found = outcome_of(state, total=40, failed=0, allowed_percent=100, failed_checks=1)
    assert found == outcome


@pytest.mark.parametrize("count", [-1, True, 1.5, "7", 2**63, None])
def test_a_count_that_is_none_is_left_out(tmp_path: Path, count: Any) -> None:
    (tmp_path / "exit.json").write_text(json.dumps({"state": "exited", "failed": count}))
    assert read_exit(tmp_path, 0).failed is None


@pytest.mark.slow("1 s")
@pytest.mark.django_db
def test_a_run_with_failed_requests_finishes_with_errors(
    runner: RunnerDaemon, spiders: Path
) -> None:
    (spiders / "fails.py").write_text(
        "import os\n"
        "with open('exit.json', 'w') as file:\n"
        '    file.write(\'{"state": "exited", "total": 39, "failed": 10, "items": 7,'
        ' "exceptions": 2}\')\n'
        "os._exit(0)\n"
    )
    run = start("fails")
    until(runner, run, lambda: not run.is_active)
    assert (run.state, run.requests_total, run.requests_failed) == (S.EXITED, 39, 10)
    assert (run.items, run.exceptions) == (7, 2)
    assert run.outcome == O.FINISHED_WITH_ERRORS
    run.job.max_failed_percent = 26
    assert run.outcome == O.SUCCEEDED


@pytest.mark.slow("3 s")
@pytest.mark.django_db
def test_lists_pages_and_rest_show_the_outcome() -> None:
    project = make_project()
    job = make_job(project=project)
    run = make_run(job=job, state=S.EXITED, requests_total=39, requests_failed=10)
    client = Client()
    client.force_login(make_user(roles={project: Role.VIEWER}))
    for page in ("/admin/jobs/job/", "/admin/jobs/run/", "/", f"/runs/{run.pk}"):
        answer = client.get(page, follow=True)
        assert "finished with errors" in answer.content.decode(), page
    rest = member(project, Role.VIEWER)
    assert rest.get(f"runs/{run.pk}").json()["outcome"] == "finished_with_errors"
    assert rest.get(f"runs/{make_run(job=job).pk}").json()["outcome"] is None
    job.max_failed_percent = 30
    job.save()
    assert rest.get(f"runs/{run.pk}").json()["outcome"] == "succeeded"
