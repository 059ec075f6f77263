"""The rest of a busy day: one of everything that has a page of its own.

Part of ``prepared.fill()``; see there.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from apps.access.models import Membership, User
from apps.access.services import create_token
from apps.agents.models import HostRule, HostState
from apps.alerts.models import Incident, RuleMute
from apps.configcenter.services import activate, save_version
from apps.joblogs.models import LogPolicy
from apps.jobs.models import Run
from apps.projects.models import Delivery, Project
from apps.projects.states import BuildState
from apps.queuestats.models import QueueState
from apps.requeststore.extraction import ResponsePage
from apps.requeststore.services.sample_pages import keep_page
from apps.runtime.models import OutboxMessage
from apps.seeds.models import Frontier
from apps.sources.models import Credential, Harvest, SourceState
from tests.access.factories import make_user
from tests.alerts.factories import make_channel, make_notice
from tests.joblogs.factories import store_texts
from tests.projects.build_factories import make_build, make_image
from tests.queuestats.test_queues import flow, make_queue
from tests.requeststore.factories import make_request, save_bizzes
from tests.routing.factories import arrive
from tests.routing.page_rules import RULES, SPARE, activate_rules, save_rules
from tests.seeds.resources.factories import make_pool, make_resource

ALERTS = {
    "rules": [
        {
            "name": "log queue too long",
            "series": "queue.ready",
            "label": "crawlyard.logs",
            "when": {"above": 10_000, "for_seconds": 60},
            "severity": "critical",
        },
        {"name": "a run failed", "event": "run.failed"},
    ]
}


def fill_areas(project: Project, running: Run, root: User, now: datetime) -> None:
    """Code, people, logs, queues, routing, seeds, requests, sources, alerts, configuration."""
    _code(project, now)
    _people(project, root)
    _logs(running, now)
    _queues(project, now)
    _routing(project)
    _seeds(project)
    _requests(project)
    _sources(project, now)
    _alerts(project, now)
    _platform(now)


def _configure(kind: str, project: Project, data: dict[str, object]) -> None:
    now = timezone.now()
    saved = save_version(kind=kind, project_id=project.pk, data=data, actor=None, now=now)
    activate(version=saved.version, actor=None, now=now)


def _code(project: Project, now: datetime) -> None:
    Project.objects.filter(pk=project.pk).update(
        git_url="https://git.example.com/team/news.git", webhook_secret="kept"
    )
    past = {"created_at": now, "started_at": now, "ended_at": now}
    build = make_build(project=project, state=BuildState.SUCCEEDED, **past)
    make_build(project=project, state=BuildState.FAILED, tag="prod/news/1.1", **past)
    make_image(project=project, build=build, created_at=now)
    Delivery.objects.create(
        project=project, delivery_id="d-1", verdict="ignored", source="github", received_at=now
    )


def _people(project: Project, root: User) -> None:
    ann = make_user(username="ann", email="ann@example.com")
    Membership.objects.create(user=ann, project=project, role="operator")
    create_token(actor=root, user=ann, name="nightly export", scopes=["jobs:read"])


def _logs(running: Run, now: datetime) -> None:
    store_texts(
        running.stream,
        "Spider opened",
        "WARNING 3 of 40 answers were empty",
        "ERROR could not read the price: <b>&nbsp;</b>",
        "中文日志：抓取 https://example.com/新闻?页=1 完成",
        *(f"page {number} read" for number in range(40)),
        now=now,
    )
    LogPolicy.objects.create(project=running.job.project, job=running.job, days=9)


def _queues(project: Project, now: datetime) -> None:
    for name, facts in {
        "logs": {"waiting": 12345, "taken": 500, "readers": 2, "out_total": 1},
        "statistics": {"waiting": 0, "taken": 0, "readers": 1, "out_total": 1},
        "runners": {"waiting": 4, "taken": 0, "readers": 0},
    }.items():
        QueueState.objects.update_or_create(
            key=f"0 {name}", defaults={"name": name, "engine": "rabbitmq", "at": now, **facts}
        )
    make_queue("in:orders", project=project, at=now, waiting=88, engine="kafka", way="in")
    flow("queue.out", "logs", 900, now)
    flow("queue.in", "logs", 950, now)


def _routing(project: Project) -> None:
    activate_rules(project)
    save_rules(project, outbounds=(*RULES.outbounds[:2], SPARE), terminal_codes=(1000, 1001))
    arrive(project, 3)


def _seeds(project: Project) -> None:
    frontier = Frontier.objects.get(project=project, name="news")
    pool = make_pool(project, name="accounts")
    make_resource(pool, name="ann-01")
    assert frontier.pk


def _requests(project: Project) -> None:
    save_bizzes(
        project,
        news={"description": "News of the day", "rules": {"list": {"fields": {"title": "h1"}}}},
    )
    make_request(project)
    page = ResponsePage(
        url="https://example.com/list",
        headers=[("Content-Type", "text/html; charset=utf-8")],
        body="<html><body><h1>新闻</h1></body></html>".encode(),
    )
    keep_page(project=project, biz="news", rule="list", page=page, actor=None)


def _sources(project: Project, now: datetime) -> None:
    api = {"kind": "json", "base_url": "https://records.example/api"}
    _configure(
        "sources",
        project,
        {"defaults": api, "sources": {"filings": {"task_id": "t-1", "date_field": "date"}}},
    )
    SourceState.objects.update_or_create(
        project=project, name="filings", defaults={"marker": 1900, "last_total": 2000}
    )
    Harvest.objects.create(
        project=project,
        source="filings",
        state="failed",
        reason="failed",
        total=2000,
        read=1200,
        published=1200,
        error="503 Service Unavailable",
        started_at=now - timedelta(hours=1),
        ended_at=now - timedelta(minutes=50),
    )
    Credential.objects.create(project=project, name="vendor", token="kept")


def _alerts(project: Project, now: datetime) -> None:
    _configure("alerts", project, ALERTS)
    channel = make_channel(project=project, name="ops-mail")
    incident = Incident.objects.filter(project=project).earliest("pk")
    make_notice(channel=channel, incident=incident, created_at=now, next_try_at=now)
    RuleMute.objects.create(
        project=project, rule="a run failed", until=now + timedelta(hours=2), by="ann"
    )


def _platform(now: datetime) -> None:
    HostRule.objects.create(host="example.com")
    HostState.objects.create(host="example.com", center="c1", reported_at=now)
    OutboxMessage.objects.create(message_id="out-1", key="logs", body=b"x", error="away")
    nightly = CrontabSchedule.objects.create(minute="0", hour="3")
    PeriodicTask.objects.create(name="Nightly clean-up", task="runtime.clean", crontab=nightly)
