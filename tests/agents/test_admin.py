"""Agents and allocations in the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client

from apps.access.models import AuditRecord, User
from apps.access.states import Role
from apps.agents.models import Agent
from apps.agents.states import AgentMode
from tests.access.factories import make_superuser, make_user
from tests.agents.factories import make_agent, make_allocation
from tests.jobs.factories import make_project, make_run

pytestmark = pytest.mark.django_db

LIST = "/admin/agents/agent/"


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def said(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


@pytest.mark.covers("S1.15", "S1.20")
def test_the_list_says_who_is_alive_and_how_they_are(django_assert_max_num_queries: Any) -> None:
    make_agent(name="lively", silent_seconds=2)
    make_agent(name="gone", silent_seconds=7300)
    make_agent(name="unheard", heartbeat_at=None)
    client = logged_in(make_superuser())
    with django_assert_max_num_queries(8) as few:
        page = client.get(LIST).content.decode()
    cost = len(few)
    for text in ("lively", "17\xa0%", "3.0\xa0GB / 8.0\xa0GB", "41.2", "2 h ago", "never"):
        assert text in page, text
    assert page.count("silent\n") == 2
    assert page.count("alive\n") == 1
    for _ in range(20):
        make_agent()
    with django_assert_max_num_queries(cost):
        client.get(LIST)


def test_nobody_adds_changes_or_deletes_an_agent() -> None:
    agent = make_agent()
    client = logged_in(make_superuser())
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.get(f"{LIST}{agent.pk}/delete/").status_code == 403
    assert client.post(f"{LIST}{agent.pk}/change/", {"name": "x"}).status_code == 403
    page = client.get(f"{LIST}{agent.pk}/change/").content.decode()
    assert agent.agent_id in page
    assert 'name="name"' not in page


def test_the_buttons_switch_an_agent_and_touch_nothing_else() -> None:
    agent = make_agent(qps=7.0)
    client = logged_in(make_superuser())
    page = client.get(f"{LIST}{agent.pk}/change/").content.decode()
    assert f"{LIST}{agent.pk}/disable" in page
    Agent.objects.filter(pk=agent.pk).update(qps=9.0)
    response = client.post(f"{LIST}{agent.pk}/disable")
    assert said(response) == [f"Agent {agent} is disabled: within 5 s nothing more is sent to it."]
    agent.refresh_from_db()
    assert (agent.mode, agent.qps) == (AgentMode.DISABLED, 9.0)
    assert client.get(f"{LIST}{agent.pk}/enable").status_code == 405
    client.post(f"{LIST}{agent.pk}/enable")
    agent.refresh_from_db()
    assert agent.mode == AgentMode.ENABLED
    trail = AuditRecord.objects.filter(object_type="agents.agent").order_by("id")
    assert [entry.action for entry in trail] == ["agents.disable_agent", "agents.enable_agent"]


def test_the_bulk_actions_report_how_many_changed() -> None:
    agents = [make_agent(), make_agent(), make_agent(mode=AgentMode.DISABLED)]
    client = logged_in(make_superuser())
    chosen = {"_selected_action": [agent.pk for agent in agents]}
    assert said(client.post(LIST, chosen | {"action": "disable_selected"})) == [
        "2 agents were disabled."
    ]
    assert not Agent.objects.exclude(mode=AgentMode.DISABLED).exists()
    response = client.post(LIST, chosen | {"action": "enable_selected"})
    assert said(response)[-1] == "3 agents were enabled."


def test_only_people_who_administer_a_project_switch_agents() -> None:
    agent = make_agent()
    project = make_project()
    operator = logged_in(make_user(roles={project: Role.OPERATOR}))
    assert str(agent) in operator.get(LIST).content.decode()
    assert operator.post(f"{LIST}{agent.pk}/disable").status_code == 403
    admin = logged_in(make_user(roles={project: Role.ADMIN}))
    assert admin.post(f"{LIST}{agent.pk}/disable").status_code == 302
    assert logged_in(make_user()).get(LIST).status_code == 403


@pytest.mark.covers("S1.16")
def test_allocations_show_their_agents_and_no_cookie(django_assert_max_num_queries: Any) -> None:
    run = make_run()
    agents = [make_agent(name="north"), make_agent(name="south")]
    cookies = '{"session": "s3cret-value"}'
    allocation = make_allocation(
        run, *agents, settings={"concurrency": 8}, cookies=cookies, warning="3 agents asked for"
    )
    client = logged_in(make_superuser())
    with django_assert_max_num_queries(9) as few:
        page = client.get("/admin/agents/allocation/").content.decode()
    cost = len(few)
    assert "north, south" in page
    assert "3 agents asked for" in page
    assert f"/runs/{run.pk}" in page
    detail = client.get(f"/admin/agents/allocation/{allocation.pk}/change/").content.decode()
    assert "s3cret-value" not in detail
    assert "concurrency" in detail
    assert "cookies&quot;: &quot;********" in detail
    for _ in range(5):
        make_allocation(make_run(), *agents)
    with django_assert_max_num_queries(cost):
        client.get("/admin/agents/allocation/")


def test_allocations_of_other_projects_are_not_shown() -> None:
    run = make_run()
    make_allocation(run, make_agent())
    client = logged_in(make_user(roles={make_project(): Role.ADMIN}))
    assert f"/runs/{run.pk}" not in client.get("/admin/agents/allocation/").content.decode()
