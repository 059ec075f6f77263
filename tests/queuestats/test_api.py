"""The books and the failed requests of a run, over REST."""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.states import Role
from apps.jobs.models import Run
from apps.jobs.states import RunState
from tests.access.factories import Api, make_user
from tests.jobs.factories import make_job, make_project, make_run
from tests.queuestats.factories import center_report, report

pytestmark = pytest.mark.django_db


def watched(state: RunState = RunState.RUNNING) -> tuple[Run, Api]:
    project = make_project()
    run = make_run(job=make_job(project=project), state=state)
    return run, Api(make_user(roles={project: Role.VIEWER}))


@pytest.mark.covers("S1.17", "S1.19")
def test_the_counters_of_a_run() -> None:
    run, api = watched()
    counts = {"total": 10, "success": 5, "failed": 1, "queued": 3, "in_flight": 1, "pages": 4}
    report(run, agents={"a": 6}, **counts)
    shown = api.get(f"runs/{run.pk}/counters").json()
    assert shown["left"] == 4
    assert {name: shown[name] for name in counts} == counts
    assert (shown["state"], shown["agents"], shown["balanced"]) == ("running", {"a": 6}, True)
    assert (shown["reported"], shown["final"]) == (True, False)


@pytest.mark.covers("S1.19")
def test_attempts_and_what_the_centers_did_with_them() -> None:
    run, api = watched()
    counts = {"sent": 6, "retried": 3, "returned": 4, "skipped": 1, "timed_out": 2, "refused": 1}
    report(run, **counts, out=1, held=1)
    shown = api.get(f"runs/{run.pk}/counters").json()
    assert {name: shown[name] for name in counts} == counts
    assert (shown["out"], shown["held"], shown["cancelled"]) == (1, 1, 0)
    assert (shown["requests_balanced"], shown["attempts_balanced"]) == (True, True)
    assert (shown["center"]["reported"], shown["center"]["received"]) == (False, 0)
    center_report(run, received=9, dispatched=4, skipped=1, expired=2, refused=1, held=1)
    shown = api.get(f"runs/{run.pk}/counters").json()
    assert shown["center"] == {
        **{"received": 9, "dispatched": 4, "skipped": 1, "expired": 2, "refused": 1, "held": 1},
        "reported": True,
        "balanced": True,
    }


def test_a_run_that_has_said_nothing_has_empty_books() -> None:
    run, api = watched(RunState.QUEUED)
    shown = api.get(f"runs/{run.pk}/counters").json()
    assert (shown["total"], shown["left"], shown["reported"]) == (0, 0, False)


@pytest.mark.parametrize("what", ["counters", "failures"])
def test_runs_of_other_projects_do_not_exist(what: str) -> None:
    run, _api = watched()
    stranger = Api(make_user(roles={make_project(): Role.ADMIN}))
    assert stranger.get(f"runs/{run.pk}/{what}").status_code == 404
    assert stranger.get(f"runs/99999999999999999999999/{what}").status_code == 404
    assert Api().get(f"runs/{run.pk}/{what}").status_code == 401


def test_counters_need_the_scope_of_this_area() -> None:
    run, _api = watched()
    user = make_user(roles={run.job.project: Role.VIEWER})
    assert Api(user, scopes=("jobs:read",)).get(f"runs/{run.pk}/counters").status_code == 403
    assert Api(user, scopes=("queuestats:read",)).get(f"runs/{run.pk}/counters").status_code == 200


def test_failures_come_in_pages_and_each_once(django_assert_max_num_queries: Any) -> None:
    run, api = watched()
    other = make_run(job=run.job)
    report(run, total=25, failed=25, failures=25)
    report(other, total=1, failed=1, failures=1)
    seen: list[str] = []
    after = ""
    while True:
        with django_assert_max_num_queries(6):
            page = api.get(f"runs/{run.pk}/failures?limit=10&after={after}").json()
        seen += [row["url"] for row in page["results"]]
        after = page["next"]
        if after is None:
            break
    assert seen == [f"https://a.org/{number}" for number in range(1, 26)]
    assert page["results"][0].keys() == {"id", "url", "status", "reason", "at"}
