"""What the home page says first: incidents, missed and overdue times, runs that nobody takes."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.access.states import Role
from apps.alerts.models import Incident
from apps.dashboard import pages
from apps.dashboard.backlog import Backlog
from apps.dashboard.queries import home
from apps.jobs.models import PlannedRun, Schedule
from apps.jobs.states import RunState
from apps.projects.models import Project
from apps.runtime.services import register_daemon
from tests.access.factories import enter, make_superuser, make_user
from tests.agents.factories import make_agent
from tests.jobs.factories import make_job, make_project, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "backlog", Backlog)


def opened(project: Project | None, rule: str = "too long", **fields: Any) -> Incident:
    now = timezone.now()
    values = {"source": "queue.ready", "severity": "critical", "opened_at": now, "seen_at": now}
    return Incident.objects.create(project=project, rule=rule, **(values | fields))


def live(user: Any) -> str:
    return enter(user).get("/home/live").content.decode()


def test_open_incidents_come_before_all_else() -> None:
    project = make_project()
    make_run(state=RunState.FAILED, ended_at=timezone.now(), reason="boom")
    first = opened(project, key="logs", severity="warning")
    worst = opened(None, rule="<b>silent")
    opened(project, rule="over", state="closed")
    html = live(make_superuser())
    assert re.findall(r'data-incident="(\d+)"', html) == [str(worst.pk), str(first.pk)]
    assert html.index("data-incident") < html.index("boom")
    assert "&lt;b&gt;silent" in html
    assert f"/admin/alerts/incident/{first.pk}/change/" in html
    assert ">over<" not in html
    assert "Nothing. All runs" not in html


def test_what_an_incident_says_is_not_said_again() -> None:
    now = timezone.now()
    lost = make_run(state=RunState.LOST, ended_at=now, reason="told by an incident")
    late = make_run(state=RunState.FAILED, ended_at=now, reason="told by the run")
    opened(lost.job.project, key="job:1", source="run.lost", facts={"run": lost.pk})
    # That it began late says nothing of its end.
    opened(late.job.project, key="job:2", source="run.late", facts={"run": late.pk})
    for name in ("told", "untold"):
        register_daemon(
            kind="center",
            name=name,
            boot="1",
            host="box",
            pid=1,
            state="running",
            now=now - timedelta(minutes=5),
        )
        make_agent(agent_id=name, name=f"agent-{name}", silent_seconds=600)
    opened(None, key="daemon:center:told", source="daemon.silent")
    opened(None, key="agent:told", source="agent.silent")
    html = live(make_superuser())
    troubles = html.partition("cy-troubles")[2].partition("</ul>")[0]
    assert "told by the run" in troubles
    assert "told by an incident" not in troubles
    assert "center untold" in troubles
    assert "<strong>center told" not in troubles
    assert "agent-untold" in troubles
    assert "agent-told" not in troubles


def test_incidents_of_others_are_not_told() -> None:
    mine, other = make_project(), make_project()
    opened(other)
    opened(None)
    own = opened(mine, count=1234)
    html = live(make_user(roles={mine: Role.VIEWER}))
    assert re.findall(r'data-incident="(\d+)"', html) == [str(own.pk)]
    assert "1,234" in html


def test_the_sidebar_counts_what_nobody_has_taken_on() -> None:
    root = make_superuser()
    opened(None, rule="one")
    opened(None, rule="two", severity="info")
    opened(None, rule="three", acknowledged_at=timezone.now(), acknowledged_by=root)
    html = enter(root).get("/admin/").content.decode()
    item = html.partition('href="/admin/alerts/incident/"')[2].partition("</a>")[0]
    assert re.sub(r"<[^>]+>|\s", "", item).endswith("2")
    assert "acknowledged by" in html


@pytest.mark.slow("1 s")
def test_times_that_passed_are_told() -> None:
    now = timezone.now()
    job = make_job(name="Papers")
    schedule = Schedule.objects.create(
        job=job, cron="* * * * *", time_zone="UTC", planned_through=now
    )
    past = {"outcome": "missed", "reason": "no worker"}
    for hours in (1, 2, 30):
        at = now - timedelta(hours=hours)
        PlannedRun.objects.create(schedule=schedule, planned_at=at, decided_at=at, **past)
    html = live(make_superuser())
    assert html.count("data-missed") == 2
    assert "data-overdue" not in html
    Schedule.objects.update(next_at=now - timedelta(minutes=5))
    html = live(make_superuser())
    assert "data-overdue" in html
    stranger = make_user(roles={make_project(): Role.VIEWER})
    assert "data-missed" not in live(stranger)
    assert "data-overdue" not in live(stranger)


def test_runs_that_nobody_takes_are_told_unless_they_may_wait() -> None:
    old = timezone.now() - timedelta(minutes=10)
    stuck = make_run(created_at=old, waiting_reason="every host is full")
    make_run(created_at=timezone.now())
    make_run(created_at=old, not_before=timezone.now() + timedelta(hours=1))
    make_run(created_at=old, waits_for=stuck)
    html = live(make_superuser())
    assert html.count("data-stuck") == 1
    assert "every host is full" in html


def test_a_run_that_nobody_takes_is_told_behind_many_newer_ones() -> None:
    make_run(created_at=timezone.now() - timedelta(minutes=10))
    job = make_job()
    for _each in range(home.SHOWN_RUNS):
        make_run(job=job, state=RunState.RUNNING)
    assert live(make_superuser()).count("data-stuck") == 1


def test_charts_are_of_what_one_sees() -> None:
    project = make_project(name="Mine")
    html = enter(make_user(roles={project: Role.VIEWER})).get("/admin/").content.decode()
    assert f"/api/v1/projects/{project.pk}/series/points" in html
    assert "/api/v1/series/points" not in html
    html = enter(make_superuser()).get("/admin/").content.decode()
    assert "/api/v1/series/points?name=queue.ready&amp;label=logs" in html.replace(
        "\\u0026", "&amp;"
    )


@pytest.mark.slow("2 s")
def test_few_queries_bring_all_of_it(django_assert_max_num_queries: Any) -> None:
    """Also where everything needs a person; a page opens on a platform with a lot of it."""
    project, now = make_project(), timezone.now()
    member = make_user(roles={project: Role.VIEWER})
    for _ in range(13):
        job = make_job(project=project)
        make_run(job=job, state=RunState.FAILED, ended_at=now)
        make_run(job=job)
        make_agent()
        make_agent(silent_seconds=3600)
    opened(project, key="logs")
    for person, most in ((make_superuser(), 20), (member, 20)):
        client = enter(person)
        client.get("/admin/")
        with django_assert_max_num_queries(most):
            html = client.get("/admin/").content.decode()
        assert "13 failed or lost runs in the last 24 hours" in html
        assert "13 agents are silent" in html


def test_of_many_agents_some_are_shown_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "SHOWN_ALIVE", 2)
    for number in range(4):
        make_agent(name=f"agent-{number}")
    html = live(make_superuser())
    assert re.findall(r">(agent-\d)<", html) == ["agent-0", "agent-1"]
    assert 'Agents online <span class="cy-count">4</span>' in html
