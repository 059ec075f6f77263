"""Agents and allocations in the admin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.utils import timezone

from apps.access.models import AuditRecord, User
from apps.access.states import Role
from apps.agents.models import Agent, AgentSample
from apps.agents.states import AgentMode
from apps.runtime.models import OutboxMessage
from tests.access.factories import make_superuser, make_user
from tests.agents.factories import make_agent, make_allocation
from tests.confirmation import confirm, fields_of
from tests.jobs.factories import make_job, make_project, make_run

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
    assert said(response) == [f"Agent {agent} is disabled: it gets no more requests within 5 s."]
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


@pytest.mark.covers("S1.15")
def test_the_list_shows_modes_problems_and_a_line_of_the_last_hour() -> None:
    agent = make_agent(name="north", mode=AgentMode.DRAINING, problems=["<disk> full", "more"])
    gone = make_agent(name="gone", silent_seconds=600, qps=777.5, cpu_percent=55.4)
    for minutes in (50, 49, 10, 9):
        add_sample(agent, minutes)
    page = logged_in(make_superuser()).get(LIST).content.decode()
    assert "draining\n" in page
    assert "&lt;disk&gt; full (and 1 more)" in page
    assert page.count("<polyline") == 2
    # What it said before it fell silent is not true any more.
    assert "777.5" not in page
    assert "55\xa0%" not in page
    assert f'data-live-cell="{gone.pk}.rate"' in page


def test_the_live_cells_are_those_of_the_page(django_assert_max_num_queries: Any) -> None:
    agents = [make_agent(problems=["disk full"]), make_agent(), make_agent()]
    client = logged_in(make_superuser())
    page = client.get(LIST).content.decode()
    ids = ",".join(str(agent.pk) for agent in agents[:2])
    with django_assert_max_num_queries(4):
        answer = client.get(f"{LIST}live?ids={ids}").json()["cells"]
    assert {mark.split(".")[0] for mark in answer} == set(ids.split(","))
    for mark in answer:
        assert f'data-live-cell="{mark}"' in page
    assert "disk full" in answer[f"{agents[0].pk}.problems"]
    for odd in ("", "x", "1,,2", "9" * 40, "-1", "٣"):
        assert client.get(f"{LIST}live?ids={odd}").status_code == 200
    assert client.post(f"{LIST}live").status_code == 405
    assert logged_in(make_user()).get(f"{LIST}live?ids={ids}").status_code == 403


@pytest.mark.covers("S1.15", "S1.20")
def test_the_page_of_an_agent_draws_its_history(django_assert_max_num_queries: Any) -> None:
    agent = make_agent(name="north", problems=["disk full"])
    for minutes in (300, 50, 49, 48):
        add_sample(agent, minutes)
    client = logged_in(make_superuser())
    with django_assert_max_num_queries(12):
        page = client.get(f"{LIST}{agent.pk}/change/").content.decode()
    assert "disk full" in page
    assert page.count("<polyline") == 4
    day = client.get(f"{LIST}{agent.pk}/change/?hours=24").content.decode()
    assert day.count("<polyline") == 8
    live = client.get(f"{LIST}{agent.pk}/live?hours=24").content.decode()
    assert live.count("<polyline") == 8
    assert "<html" not in live
    for odd in ("x", "-1", "9" * 40, "7"):
        assert client.get(f"{LIST}{agent.pk}/live?hours={odd}").status_code == 200
    assert client.get(f"{LIST}999/live").status_code == 404
    empty = client.get(f"{LIST}{make_agent().pk}/change/").content.decode()
    assert "No samples in this time range" in empty


@pytest.mark.covers("S1.16")
def test_the_page_of_an_agent_names_only_visible_runs() -> None:
    agent = make_agent()
    mine, other = make_run(), make_run()
    make_allocation(mine, agent)
    make_allocation(other, agent)
    make_allocation(make_run(job=mine.job), agent, released_at=timezone.now())
    viewer = logged_in(make_user(roles={mine.job.project: Role.VIEWER}))
    page = viewer.get(f"{LIST}{agent.pk}/change/").content.decode()
    assert f"/runs/{mine.pk}" in page
    assert f"/runs/{other.pk}" not in page
    assert other.job.name not in page
    assert "1 more, which is not shown here" in page
    assert f"{LIST}{agent.pk}/drain" not in page
    assert f"{LIST}{agent.pk}/exit" not in page


def test_draining_by_button_and_in_bulk() -> None:
    one, two = make_agent(), make_agent()
    client = logged_in(make_superuser())
    said_one = said(client.post(f"{LIST}{one.pk}/drain"))
    assert said_one == [
        f"Agent {one} is draining: it gets no new runs and continues its present ones."
    ]
    page = client.get(f"{LIST}{one.pk}/change/").content.decode()
    assert f"{LIST}{one.pk}/enable" in page
    assert f"{LIST}{one.pk}/drain" not in page
    chosen = {"_selected_action": [one.pk, two.pk], "action": "drain_selected"}
    assert said(client.post(LIST, chosen))[-1] == "1 agent is draining."


@pytest.mark.covers("S1.23")
def test_exit_asks_first_and_then_tells() -> None:
    one, gone = make_agent(name="one"), make_agent(name="gone", silent_seconds=60)
    client = logged_in(make_superuser())
    chosen = {"_selected_action": [one.pk, gone.pk], "action": "exit_selected"}
    question = client.post(LIST, chosen)
    assert question.status_code == 200
    text = question.content.decode()
    assert "These 2 agents finish what they hold and end." in text
    assert f'name="_selected_action" value="{gone.pk}"' in text
    assert not OutboxMessage.objects.exists()
    answer = client.post(LIST, fields_of(question) | {"reason": "new kernel"})
    assert said(answer) == [
        "Agent gone is not alive, so it cannot be asked to exit.",
        "1 agent was asked to exit.",
    ]
    assert OutboxMessage.objects.get().key == f"agent.{one.agent_id}"
    assert AuditRecord.objects.get(action="agents.exit_agent").note == "new kernel"
    page = client.get(f"{LIST}{one.pk}/exit")
    assert "This agent finishes what it holds and ends." in page.content.decode()
    assert confirm(client, f"{LIST}{one.pk}/exit").status_code == 302
    assert OutboxMessage.objects.count() == 2
    project = make_project()
    operator = logged_in(make_user(roles={project: Role.OPERATOR}))
    assert operator.get(f"{LIST}{one.pk}/exit").status_code == 403
    assert operator.post(f"{LIST}{one.pk}/exit").status_code == 403
    operator.post(LIST, fields_of(question))
    assert OutboxMessage.objects.count() == 2


@pytest.mark.slow("2 s")
@pytest.mark.covers("S1.15", "S1.36")
def test_the_preview_page_says_who_and_why_not() -> None:
    project = make_project()
    job = make_job(project=project, policy="fixed", agents=1, downloader="browser")
    make_agent(name="able-1", types=["browser"])
    make_agent(name="able-2", types=["browser"])
    make_agent(name="plain")
    make_agent(name="gone", silent_seconds=7200, types=["browser"])
    viewer = logged_in(make_user(roles={project: Role.VIEWER}))
    address = f"{LIST}preview?job={job.pk}"
    assert address in viewer.get(f"/admin/jobs/job/{job.pk}/change/").content.decode()
    assert f"{LIST}preview" in viewer.get(LIST).content.decode()
    page = viewer.get(address).content.decode()
    assert "1 of these 2, drawn at random when the run starts." in " ".join(page.split())
    assert "cannot make type &quot;browser&quot;" in page
    assert "last heartbeat 2\xa0hours ago" in " ".join(page.split(" "))
    short = viewer.get(f"{address}&agents=5").content.decode()
    assert "5 agents requested, 2 available" in short
    none = viewer.get(f"{LIST}preview?policy=random&agents=0&type=file").content.decode()
    assert "no agent available: 1 not alive, 3 cannot make type" in none
    wrong = viewer.get(f"{LIST}preview?policy=random&agents=-1&type=file").content.decode()
    assert "greater than or equal to 0" in wrong
    for odd in ("x", "999", "9" * 40, "%00"):
        assert viewer.get(f"{LIST}preview?job={odd}").status_code == 404
    stranger = logged_in(make_user(roles={make_project(): Role.ADMIN}))
    assert stranger.get(address).status_code == 404


def add_sample(agent: Agent, minutes_ago: int) -> None:
    AgentSample.objects.create(
        agent=agent,
        at=timezone.now() - timedelta(minutes=minutes_ago),
        cpu_percent=12,
        free_memory_bytes=1 << 30,
        downloaders=2,
        qps=40,
    )
