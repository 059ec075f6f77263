"""Jobs and runs over REST."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.jobs.models import Job, Run
from apps.jobs.states import RunState
from apps.projects.models import Project
from tests.access.factories import Api, make_superuser, make_user
from tests.jobs.factories import NOW, make_job, make_project, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


def member(project: Project, role: Role) -> Api:
    return Api(make_user(roles={project: role}))


def body(project: Project, **fields: Any) -> dict[str, Any]:
    return {"project": project.pk, "name": "pages", "spider": "spiders:Pages"} | fields


def test_an_editor_makes_changes_and_deletes_a_job(project: Project) -> None:
    api = member(project, Role.EDITOR)
    made = api.post("jobs", body(project, arguments={"start": "https://a.org/"}, speed=0.1))
    assert made.status_code == 201, made.content
    pk = made.json()["id"]
    assert made.json()["arguments"] == {"start": "https://a.org/"}
    assert made.json()["concurrency"] is None
    changed = api.patch(f"jobs/{pk}", {"speed": 2, "enabled": False})
    assert (changed.json()["speed"], changed.json()["enabled"]) == (2.0, False)
    assert api.delete(f"jobs/{pk}").status_code == 204
    trail = AuditRecord.objects.filter(object_type="jobs.job").order_by("id")
    assert [entry.action for entry in trail] == [
        "jobs.add_job",
        "jobs.change_job",
        "jobs.delete_job",
    ]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"spider": "no colon"}, "spider"),
        ({"spider": "a:B; rm -rf /"}, "spider"),
        ({"arguments": []}, "arguments"),
        ({"arguments": {"a": "x\x00"}}, "arguments"),
        ({"speed": -1}, "speed"),
        ({"speed": "nan"}, "speed"),
        ({"speed": "1e400"}, "speed"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 10_001}, "concurrency"),
        ({"policy": "mine"}, "policy"),
        ({"name": ""}, "name"),
    ],
)
def test_bad_input_is_refused_by_field(project: Project, fields: Any, name: str) -> None:
    response = member(project, Role.EDITOR).post("jobs", body(project, **fields))
    assert response.status_code == 400, response.content
    assert name in response.json()["fields"], response.content
    assert not Job.objects.exists()


def test_one_name_once_in_a_project(project: Project) -> None:
    make_job(project=project, name="pages")
    response = member(project, Role.EDITOR).post("jobs", body(project))
    assert response.status_code == 400
    assert Job.objects.count() == 1


def test_roles_decide(project: Project) -> None:
    job = make_job(project=project)
    viewer, operator = member(project, Role.VIEWER), member(project, Role.OPERATOR)
    assert viewer.get(f"jobs/{job.pk}").status_code == 200
    assert viewer.post(f"jobs/{job.pk}/start").status_code == 403
    assert operator.patch(f"jobs/{job.pk}", {"speed": 1}).status_code == 403
    assert operator.post(f"jobs/{job.pk}/start").status_code == 201
    assert operator.post("jobs", body(project)).status_code == 403


def test_other_projects_do_not_exist(project: Project) -> None:
    run = make_run()
    api = member(project, Role.ADMIN)
    assert api.get(f"jobs/{run.job_id}").status_code == 404
    assert api.post(f"jobs/{run.job_id}/start").status_code == 404
    assert api.get(f"runs/{run.pk}").status_code == 404
    assert api.post(f"runs/{run.pk}/stop").status_code == 404
    assert api.get("runs").json()["results"] == []
    assert api.get(f"runs?job={run.job_id}").json()["results"] == []
    assert api.post("jobs", body(run.job.project)).status_code == 400


def test_a_start_lays_its_arguments_over_the_jobs(project: Project) -> None:
    job = make_job(project=project, arguments={"a": 1, "b": 2})
    response = member(project, Role.OPERATOR).post(f"jobs/{job.pk}/start", {"arguments": {"b": 3}})
    assert response.status_code == 201
    shown = response.json()
    assert shown["arguments"] == {"a": 1, "b": 3}
    assert (shown["state"], shown["active"], shown["project"]) == ("queued", True, project.pk)
    assert Run.objects.get().arguments == {"a": 1, "b": 3}


def test_a_repeated_start_with_the_same_key_starts_once(project: Project) -> None:
    job = make_job(project=project)
    api = member(project, Role.OPERATOR)
    first = api.post(f"jobs/{job.pk}/start", Idempotency_Key="once")
    second = api.post(f"jobs/{job.pk}/start", Idempotency_Key="once")
    assert first.status_code == second.status_code == 201
    assert first.json()["id"] == second.json()["id"]
    assert second.headers["Idempotent-Replayed"] == "true"
    assert Run.objects.count() == 1


def test_bad_start_arguments_start_nothing(project: Project) -> None:
    job = make_job(project=project)
    response = member(project, Role.OPERATOR).post(f"jobs/{job.pk}/start", {"arguments": [1]})
    assert response.status_code == 400
    assert "arguments" in response.json()["fields"]
    assert not Run.objects.exists()


@pytest.mark.covers("S1.56")
def test_a_disabled_job_answers_409_with_its_code(project: Project) -> None:
    job = make_job(project=project, enabled=False)
    response = member(project, Role.OPERATOR).post(f"jobs/{job.pk}/start")
    assert (response.status_code, response.json()["code"]) == (409, "job_disabled")


def test_a_job_with_runs_stays(project: Project) -> None:
    run = make_run(job=make_job(project=project))
    response = member(project, Role.EDITOR).delete(f"jobs/{run.job_id}")
    assert (response.status_code, response.json()["code"]) == (409, "job_has_runs")
    assert Job.objects.filter(pk=run.job_id).exists()


def test_stopping_a_run(project: Project) -> None:
    run = make_run(job=make_job(project=project), state=RunState.RUNNING)
    api = member(project, Role.OPERATOR)
    stopped = api.post(f"runs/{run.pk}/stop")
    assert (stopped.status_code, stopped.json()["state"]) == (200, "stopping")
    again = api.post(f"runs/{run.pk}/stop")
    assert (again.status_code, again.json()["code"]) == (409, "move_refused")
    assert AuditRecord.objects.filter(action="jobs.stop_run").count() == 1


def test_stopping_an_ended_run_answers_409(project: Project) -> None:
    run = make_run(job=make_job(project=project), state=RunState.EXITED)
    response = member(project, Role.OPERATOR).post(f"runs/{run.pk}/stop")
    assert (response.status_code, response.json()["code"]) == (409, "run_not_active")


def test_a_run_tells_its_moves(project: Project) -> None:
    job = make_job(project=project)
    api = member(project, Role.OPERATOR)
    pk = api.post(f"jobs/{job.pk}/start").json()["id"]
    api.post(f"runs/{pk}/stop")
    shown = api.get(f"runs/{pk}")
    moves = [(move["from_state"], move["to_state"]) for move in shown.json()["moves"]]
    assert moves == [("", "queued"), ("queued", "cancelled")]
    again = api.get(f"runs/{pk}", If_None_Match=shown.headers["ETag"])
    assert again.status_code == 304


def test_filters_of_runs(project: Project) -> None:
    job = make_job(project=project)
    other = make_job()
    exited = make_run(job=job, state=RunState.EXITED)
    failed = make_run(job=job, state=RunState.FAILED)
    lost = make_run(job=other, state=RunState.LOST)
    api = Api(make_superuser())

    def ids(query: str) -> list[int]:
        return [row["id"] for row in api.get(f"runs?{query}").json()["results"]]

    assert ids("") == [lost.pk, failed.pk, exited.pk]
    assert ids(f"job={job.pk}") == [failed.pk, exited.pk]
    assert ids(f"project={other.project_id}") == [lost.pk]
    assert ids("state=failed&state=lost") == [lost.pk, failed.pk]
    assert ids("job=9999999") == []
    assert api.get("runs?job=999999999999999999999999").status_code == 400
    assert api.get("runs?project=-1").status_code == 400
    assert api.get("runs/999999999999999999999999").status_code == 404
    assert api.get("runs?state=nonsense").status_code == 400
    assert api.get("runs?job=abc").status_code == 400


def test_lists_cost_the_same_however_long(
    project: Project, django_assert_max_num_queries: Any
) -> None:
    api = member(project, Role.VIEWER)
    make_run(job=make_job(project=project))
    with django_assert_max_num_queries(6) as few:
        assert len(api.get("runs").json()["results"]) == 1
    cost = len(few)
    for _ in range(20):
        make_run(job=make_job(project=project))
    with django_assert_max_num_queries(cost):
        assert len(api.get("runs").json()["results"]) == 21
    with django_assert_max_num_queries(6):
        assert len(api.get("jobs").json()["results"]) == 21


def test_runs_since_a_time_are_all_found_whatever_the_order_of_their_ids(project: Project) -> None:
    job = make_job(project=project)
    # Two servers whose clocks differ: the later id has the earlier time.
    minutes = (0, 10, 30, 20, 40)
    runs = [make_run(job=job, created_at=NOW + timedelta(minutes=each)) for each in minutes]
    api = member(project, Role.VIEWER)

    def since(minute: int) -> list[int]:
        moment = (NOW + timedelta(minutes=minute)).isoformat().replace("+00:00", "Z")
        return [run["id"] for run in api.get(f"runs?since={moment}").json()["results"]]

    assert since(20) == [runs[4].pk, runs[3].pk, runs[2].pk]
    assert since(25) == [runs[4].pk, runs[2].pk]
    assert since(0) == [run.pk for run in reversed(runs)]
    assert since(41) == []
