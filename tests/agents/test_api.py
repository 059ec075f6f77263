"""Agents over REST."""

from __future__ import annotations

import pytest

from apps.access.models import AuditRecord
from apps.access.states import Role
from tests.access.factories import Api, make_superuser, make_user
from tests.agents.factories import make_agent, make_allocation
from tests.jobs.factories import make_job, make_project, make_run

pytestmark = pytest.mark.django_db


@pytest.mark.covers("S1.15", "S1.21")
def test_the_state_of_every_agent() -> None:
    lively = make_agent(labels={"zone": "north"})
    gone = make_agent(silent_seconds=60)
    api = Api(make_user(roles={make_project(): Role.VIEWER}))
    rows = {row["id"]: row for row in api.get("agents").json()["results"]}
    assert (rows[lively.pk]["alive"], rows[gone.pk]["alive"]) == (True, False)
    assert rows[lively.pk]["labels"] == {"zone": "north"}
    assert rows[lively.pk]["qps"] == 41.25
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
    assert admin.patch(f"agents/{agent.pk}", {}).status_code in {400, 422}
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
    make_allocation(run, *agents, asked=3, warning="3 agents asked for, 2 given")
    shown = api.get(f"runs/{run.pk}/agents").json()
    assert {row["id"] for row in shown["agents"]} == {agent.pk for agent in agents}
    assert shown["warning"] == "3 agents asked for, 2 given"
    stranger = Api(make_user(roles={make_project(): Role.ADMIN}))
    assert stranger.get(f"runs/{run.pk}/agents").status_code == 404
    assert Api(make_superuser()).get("runs/999/agents").status_code == 404
