"""Agents over REST."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.agents.models import AgentSample, Allocation
from apps.runtime.models import OutboxMessage
from tests.access.factories import Api, make_superuser, make_user
from tests.agents.factories import make_agent, make_allocation
from tests.jobs.factories import NOW, make_job, make_project, make_run

pytestmark = pytest.mark.django_db


@pytest.mark.covers("S1.15", "S1.20", "S1.21")
def test_the_state_of_every_agent() -> None:
    lively = make_agent(labels={"zone": "north"})
    gone = make_agent(silent_seconds=60)
    api = Api(make_user(roles={make_project(): Role.VIEWER}))
    rows = {row["id"]: row for row in api.get("agents").json()["results"]}
    assert (rows[lively.pk]["alive"], rows[gone.pk]["alive"]) == (True, False)
    assert rows[lively.pk]["labels"] == {"zone": "north"}
    said = ("name", "processors", "total_memory_bytes", "free_memory_bytes", "cpu_percent")
    shown = tuple(rows[lively.pk][name] for name in (*said, "downloaders", "qps"))
    assert shown == (lively.name, 4, 8 << 30, 3 << 30, 17.4, 2, 41.25)
    assert [row["id"] for row in api.get("agents?alive=true").json()["results"]] == [lively.pk]
    assert [row["id"] for row in api.get("agents?alive=false").json()["results"]] == [gone.pk]
    assert api.get(f"agents/{gone.pk}").json()["agent_id"] == gone.agent_id


def test_whoever_sees_no_project_sees_no_agent() -> None:
    agent = make_agent()
    assert Api(make_user()).get("agents").status_code == 403
    assert Api(make_user()).get(f"agents/{agent.pk}").status_code == 403
    assert Api().get("agents").status_code == 401


def test_only_the_mode_can_be_changed_and_by_admins_alone() -> None:
    agent = make_agent()
    project = make_project()
    editor = Api(make_user(roles={project: Role.EDITOR}))
    assert editor.patch(f"agents/{agent.pk}", {"mode": "disabled"}).status_code == 403
    admin = Api(make_user(roles={project: Role.ADMIN}))
    response = admin.patch(f"agents/{agent.pk}", {"mode": "disabled", "name": "mine"})
    assert response.status_code == 200
    assert (response.json()["mode"], response.json()["name"]) == ("disabled", agent.name)
    assert admin.patch(f"agents/{agent.pk}", {}).status_code == 400
    assert admin.delete(f"agents/{agent.pk}").status_code == 405
    assert AuditRecord.objects.filter(action="agents.disable_agent").count() == 1


@pytest.mark.covers("S1.16")
def test_the_agents_of_a_run() -> None:
    project = make_project()
    run = make_run(job=make_job(project=project))
    api = Api(make_user(roles={project: Role.VIEWER}))
    empty = api.get(f"runs/{run.pk}/agents").json()
    assert (empty["agents"], empty["released_at"]) == ([], None)
    agents = [make_agent(), make_agent()]
    make_allocation(run, *agents, asked=3, warning="3 agents requested, 2 available")
    shown = api.get(f"runs/{run.pk}/agents").json()
    assert {row["id"] for row in shown["agents"]} == {agent.pk for agent in agents}
    assert shown["warning"] == "3 agents requested, 2 available"
    stranger = Api(make_user(roles={make_project(): Role.ADMIN}))
    assert stranger.get(f"runs/{run.pk}/agents").status_code == 404
    assert Api(make_superuser()).get("runs/999/agents").status_code == 404


@pytest.mark.covers("S1.15", "S1.54")
def test_an_agent_is_drained_disabled_and_enabled() -> None:
    agent = make_agent(types=["http", "browser"], problems=["disk full"])
    project = make_project()
    admin = Api(make_user(roles={project: Role.ADMIN}))
    for verb, mode in (("drain", "draining"), ("disable", "disabled"), ("enable", "enabled")):
        response = admin.post(f"agents/{agent.pk}/{verb}")
        assert (response.status_code, response.json()["mode"]) == (200, mode)
        agent.refresh_from_db()
        assert agent.mode == mode
    shown = admin.get(f"agents/{agent.pk}").json()
    assert (shown["types"], shown["problems"]) == (["http", "browser"], ["disk full"])
    assert admin.patch(f"agents/{agent.pk}", {"mode": "asleep"}).status_code == 400
    make_agent(mode="draining")
    make_agent(mode="disabled")
    assert len(admin.get("agents?mode=draining&mode=disabled").json()["results"]) == 2
    assert admin.get("agents?mode=asleep").status_code == 400
    operator = Api(make_user(roles={project: Role.OPERATOR}))
    for verb in ("enable", "drain", "disable", "exit"):
        assert operator.post(f"agents/{agent.pk}/{verb}").status_code == 403
    assert AuditRecord.objects.filter(object_type="agents.agent").count() == 3


@pytest.mark.covers("S1.23")
def test_an_agent_is_told_to_exit() -> None:
    agent, gone = make_agent(), make_agent(silent_seconds=60)
    admin = Api(make_user(roles={make_project(): Role.ADMIN}))
    told = admin.post(f"agents/{agent.pk}/exit", {"reason": "new kernel"}, Idempotency_Key="once")
    assert told.status_code == 200
    assert (
        admin.post(
            f"agents/{agent.pk}/exit", {"reason": "new kernel"}, Idempotency_Key="once"
        ).headers["Idempotent-Replayed"]
        == "true"
    )
    assert OutboxMessage.objects.get().key == f"agent.{agent.agent_id}"
    refused = admin.post(f"agents/{gone.pk}/exit")
    assert (refused.status_code, refused.json()["code"]) == (409, "agent_silent")
    assert admin.post(f"agents/{agent.pk}/exit", {"reason": "x" * 201}).status_code == 400
    assert admin.post("agents/999/exit").status_code == 404


@pytest.mark.covers("S1.15", "S1.20")
def test_the_samples_of_an_agent_newest_first(django_assert_num_queries: Any) -> None:
    agent, other = make_agent(), make_agent()
    for minutes in range(70):
        for each in (agent, other):
            AgentSample.objects.create(
                agent=each,
                at=NOW + timedelta(minutes=minutes),
                cpu_percent=10,
                free_memory_bytes=1 << 30,
                downloaders=2,
                qps=minutes,
            )
    api = Api(make_user(roles={make_project(): Role.VIEWER}))
    page = api.get(f"agents/{agent.pk}/samples?limit=60").json()
    assert [row["qps"] for row in page["results"]] == [float(n) for n in range(69, 9, -1)]
    rest = api.get(f"agents/{agent.pk}/samples?limit=60&after={page['next']}").json()
    assert len(rest["results"]) == 10
    since = api.get(f"agents/{agent.pk}/samples?since=2026-03-01T13:00:00Z").json()
    assert [row["at"] for row in since["results"]][-1] == "2026-03-01T13:00:00Z"
    assert len(since["results"]) == 10
    assert api.get(f"agents/{agent.pk}/samples?since=yesterday").status_code == 400
    assert api.get("agents/999/samples").status_code == 404
    assert Api(make_user()).get(f"agents/{agent.pk}/samples").status_code == 403


@pytest.mark.covers("S1.16")
def test_allocations_of_visible_projects(django_assert_max_num_queries: Any) -> None:
    project = make_project()
    run = make_run(job=make_job(project=project))
    agent = make_agent()
    mine = make_allocation(run, agent, settings={"type": "browser"}, cookies='{"sid": "s3cret"}')
    old = make_allocation(
        make_run(job=run.job), policy="fixed", asked=2, released_at=timezone.now()
    )
    make_allocation(make_run(), agent)
    api = Api(make_user(roles={project: Role.VIEWER}))
    with django_assert_max_num_queries(6) as few:
        rows = api.get("agents/allocations").json()["results"]
    cost = len(few)
    assert [row["id"] for row in rows] == [old.pk, mine.pk]
    assert rows[1] | {"created_at": None} == {
        "id": mine.pk,
        "project": project.pk,
        "owner": run.owner,
        "run": run.pk,
        "policy": "random",
        "type": "browser",
        "asked": 0,
        "warning": "",
        "agents": [agent.agent_id],
        "created_at": None,
        "released_at": None,
    }

    def found(query: str) -> list[int]:
        return [row["id"] for row in api.get(f"agents/allocations?{query}").json()["results"]]

    assert found("open=true") == [mine.pk]
    assert found("open=false") == [old.pk]
    assert found(f"run={run.pk}") == [mine.pk]
    assert found(f"agent={agent.pk}") == [mine.pk]
    assert api.get("agents/allocations?run=x").status_code == 400
    assert "s3cret" not in api.get(f"agents/allocations/{mine.pk}").content.decode()
    for _ in range(10):
        make_allocation(make_run(job=run.job), agent, make_agent())
    with django_assert_max_num_queries(cost):
        api.get("agents/allocations")


@pytest.mark.covers("S1.15", "S1.36")
def test_the_preview_of_a_job(django_assert_max_num_queries: Any) -> None:
    project = make_project()
    job = make_job(project=project, policy="fixed", agents=2, downloader="browser")
    able = make_agent(types=["http", "browser"])
    plain = make_agent(name="plain")
    gone = make_agent(silent_seconds=60, types=["browser"])
    make_agent(mode="draining", types=["browser"])
    api = Api(make_user(roles={project: Role.VIEWER}))
    with django_assert_max_num_queries(5):
        response = api.post("agents/allocations/preview", {"job": job.pk})
    assert response.status_code == 200, response.content
    shown = response.json()
    assert (shown["policy"], shown["type"], shown["asked"], shown["given"]) == (
        "fixed",
        "browser",
        2,
        1,
    )
    assert [row["id"] for row in shown["eligible"]] == [able.pk]
    refused = {row["id"]: row for row in shown["refused"]}
    assert refused[plain.pk]["code"] == "type"
    assert refused[plain.pk]["reason"] == 'cannot make type "browser"'
    assert (refused[gone.pk]["code"], refused[gone.pk]["reason"]) == ("silent", "not alive")
    assert refused[gone.pk]["heartbeat_at"] is not None
    assert shown["warning"].startswith("2 agents requested, 1 available (1 not alive, 1 draining")
    # The same job with other wishes, and wishes without a job.
    other = api.post("agents/allocations/preview", {"job": job.pk, "type": "file"}).json()
    assert (other["given"], other["eligible"]) == (0, [])
    assert other["refusal"].startswith("no agent available: 1 not alive")
    everywhere = api.post("agents/allocations/preview", {}).json()
    assert (everywhere["policy"], everywhere["asked"], everywhere["given"]) == ("random", 0, 2)
    assert not Allocation.objects.exists()


@pytest.mark.parametrize(
    "body",
    [{"agents": -1}, {"policy": "mine"}, {"type": "telepathy"}, {"job": 999}, {"agents": "x"}],
)
def test_a_preview_of_nonsense_is_refused_by_field(body: dict[str, Any]) -> None:
    api = Api(make_user(roles={make_project(): Role.VIEWER}))
    response = api.post("agents/allocations/preview", body)
    assert response.status_code == 400
    assert set(response.json()["fields"]) == set(body)


def test_jobs_of_other_projects_have_no_preview() -> None:
    api = Api(make_user(roles={make_project(): Role.ADMIN}))
    response = api.post("agents/allocations/preview", {"job": make_job().pk})
    assert (response.status_code, list(response.json()["fields"])) == (400, ["job"])
    assert Api(make_user()).post("agents/allocations/preview", {}).status_code == 403
