"""Runs over REST: what can be asked of them, and what they say of themselves."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.access.states import Role
from apps.jobs.models import PlannedRun, Run, Schedule
from apps.jobs.services import acknowledge
from apps.jobs.states import PlanOutcome, RunState, Trigger
from apps.projects.models import Project
from tests.access.factories import make_superuser
from tests.jobs.factories import NOW, make_job, make_project, make_run
from tests.jobs.test_api import Api, member
from yardkit.protocol import LifecycleAnswer, RunAction

pytestmark = pytest.mark.django_db

S = RunState


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.mark.slow("2 s")
@pytest.mark.covers("S1.8", "S1.9", "S1.10")
@pytest.mark.parametrize(
    ("action", "state", "then"),
    [
        ("pause", S.RUNNING, "pausing"),
        ("resume", S.PAUSED, "resuming"),
        ("restart", S.PAUSED, "stopping"),
        ("stop", S.RUNNING, "stopping"),
        ("freeze", S.PAUSING, "pausing"),
    ],
)
def test_each_action_and_its_refusals(
    project: Project, action: str, state: RunState, then: str
) -> None:
    run = make_run(job=make_job(project=project), state=state)
    operator = member(project, Role.OPERATOR)
    assert member(project, Role.VIEWER).post(f"runs/{run.pk}/{action}").status_code == 403
    assert member(make_project(), Role.ADMIN).post(f"runs/{run.pk}/{action}").status_code == 404
    done = operator.post(f"runs/{run.pk}/{action}")
    assert (done.status_code, done.json()["state"]) == (200, then)
    again = operator.post(f"runs/{run.pk}/{action}")
    assert (again.status_code, again.json()["code"]) == (409, "move_refused")
    ended = make_run(job=run.job, state=S.EXITED)
    refused = operator.post(f"runs/{ended.pk}/{action}")
    assert (refused.status_code, refused.json()["code"]) == (409, "run_not_active")


def test_a_queued_run_cannot_be_restarted(project: Project) -> None:
    run = make_run(job=make_job(project=project))
    refused = member(project, Role.OPERATOR).post(f"runs/{run.pk}/restart")
    assert (refused.status_code, refused.json()["code"]) == (409, "move_refused")
    assert "is queued" in refused.json()["detail"]


@pytest.mark.covers("S1.53")
def test_the_commands_of_a_run_and_their_answers(project: Project) -> None:
    run = make_run(job=make_job(project=project), state=S.RUNNING)
    api = member(project, Role.OPERATOR)
    api.post(f"runs/{run.pk}/pause")
    api.post(f"runs/{run.pk}/resume")
    first, second = run.commands.order_by("id")
    said = LifecycleAnswer(
        run=run.pk, boot=run.boot, action=RunAction.PAUSE, command=first.pk, reason="late"
    )
    acknowledge(message=said, now=NOW)
    rows = api.get(f"runs/{run.pk}/commands").json()["results"]
    assert [(row["id"], row["action"], row["accepted"], row["answer"]) for row in rows] == [
        (second.pk, "resume", None, ""),
        (first.pk, "pause", True, "late"),
    ]
    assert rows[0]["answered_at"] is None
    assert rows[0]["asked_by"]
    assert member(make_project(), Role.ADMIN).get(f"runs/{run.pk}/commands").status_code == 404
    shown = api.get(f"runs/{run.pk}").json()
    assert shown["allowed"] == ["pause", "restart", "exit", "freeze", "tune"]


def test_all_runs_of_a_job_at_once(project: Project) -> None:
    job = make_job(project=project)
    running, starting = make_run(job=job, state=S.RUNNING), make_run(job=job, state=S.STARTING)
    make_run(job=job, state=S.EXITED)
    elsewhere = make_run(state=S.RUNNING)
    api = member(project, Role.OPERATOR)
    tally = api.post(f"jobs/{job.pk}/pause").json()
    assert tally["done"] == [running.pk]
    (refusal,) = tally["refused"]
    assert (refusal["run"], refusal["code"]) == (starting.pk, "move_refused")
    assert "starting" in refusal["detail"]
    assert api.post(f"jobs/{job.pk}/resume").json()["done"] == [running.pk]
    assert api.post(f"jobs/{job.pk}/stop").json() == {
        "done": [running.pk, starting.pk],
        "refused": [],
    }
    assert member(project, Role.VIEWER).post(f"jobs/{job.pk}/stop").status_code == 403
    elsewhere.refresh_from_db()
    assert elsewhere.state == S.RUNNING


@pytest.mark.covers("S1.13", "S1.56")
def test_a_job_that_lets_one_run_only_says_which_is_active(project: Project) -> None:
    run = make_run(job=make_job(project=project, overlap="skip"), state=S.RUNNING)
    api = member(project, Role.OPERATOR)
    refused = api.post(f"jobs/{run.job_id}/start")
    assert (refused.status_code, refused.json()["code"]) == (409, "job_running")
    assert str(run.pk) in refused.json()["detail"]
    allowed = api.post(f"jobs/{run.job_id}/start", {"overlap": "allow"})
    assert (allowed.status_code, allowed.json()["waits_for"]) == (201, None)
    queued = api.post(f"jobs/{run.job_id}/start", {"overlap": "queue"})
    assert queued.json()["waits_for"] == allowed.json()["id"]
    assert api.post(f"jobs/{run.job_id}/start", {"overlap": "maybe"}).status_code == 400


def test_what_a_run_says_of_itself(project: Project) -> None:
    job = make_job(project=project, cron="0 6 * * *")
    schedule, _ = Schedule.objects.get_or_create(
        job=job, defaults={"cron": job.cron, "time_zone": "UTC", "planned_through": NOW}
    )
    first = make_run(job=job, state=S.FAILED)
    run = make_run(
        job=job,
        trigger=Trigger.RETRY,
        attempt=2,
        retry_of=first,
        image_reference="shop:1",
        image_digest="sha256:ab",
        waiting_reason="nobody is free",
    )
    PlannedRun.objects.create(
        schedule=schedule, planned_at=NOW, outcome=PlanOutcome.STARTED, run=first, decided_at=NOW
    )
    api = member(project, Role.VIEWER)
    shown = api.get(f"runs/{run.pk}").json()
    assert (shown["trigger"], shown["attempt"], shown["retry_of"]) == ("retry", 2, first.pk)
    assert (shown["image_reference"], shown["image_digest"]) == ("shop:1", "sha256:ab")
    assert (shown["waiting_reason"], shown["planned_at"]) == ("nobody is free", None)
    assert api.get(f"runs/{first.pk}").json()["planned_at"].startswith("2026-03-01T12:00")


def test_runs_can_be_found_by_what_began_them_and_where(project: Project) -> None:
    job = make_job(project=project)
    old = make_run(job=job, state=S.EXITED, trigger=Trigger.CRON, host="box-1")
    new = make_run(job=job, created_at=NOW + timedelta(days=1))
    api = Api(make_superuser())

    def ids(query: str) -> list[int]:
        return [row["id"] for row in api.get(f"runs?{query}").json()["results"]]

    assert ids("trigger=cron&trigger=link") == [old.pk]
    assert ids("host=box-1") == [old.pk]
    assert ids("since=2026-03-02T00:00:00Z") == [new.pk]
    for query in ("trigger=magic", "since=yesterday", "since=0001-01-01T00:00:00%2B23:59"):
        assert api.get(f"runs?{query}").status_code == 400, query


def test_the_same_key_asks_once(project: Project) -> None:
    run = make_run(job=make_job(project=project), state=S.RUNNING)
    api = member(project, Role.OPERATOR)
    first = api.post(f"runs/{run.pk}/pause", Idempotency_Key="once")
    second = api.post(f"runs/{run.pk}/pause", Idempotency_Key="once")
    assert first.status_code == second.status_code == 200
    assert Run.objects.get(pk=run.pk).commands.count() == 1
