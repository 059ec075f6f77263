"""A process with the cluster's settings that answers a test's questions, one JSON line each.

Starting Django for each question would take longer than most of the tests.
"""

from __future__ import annotations

from typing import Any

from tests.e2e.helper_protocol import answer_questions


def project(slug: str) -> Any:
    from apps.projects.models import Project

    defaults = {"name": "Failures", "allowed_networks": ["127.0.0.0/8"]}
    return Project.objects.update_or_create(slug=slug, defaults=defaults)[0]


def start(*, url: str, spider: str, policy: str, agents: int, window: int, keep_pages: str) -> int:
    """A run of its own job; its id.

    ``spider``: a class of ``matrix_spiders``, or the name of a Scrapy spider, in lower case.
    """
    from django.utils import timezone

    from apps.jobs.models import Job
    from apps.jobs.services import start_run

    number = Job.objects.count() + 1
    job = Job.objects.create(
        project=project("failures"),
        name=f"job {number}",
        spider=spider if spider.islower() else f"matrix_spiders:{spider}",
        arguments={"url": url},
        speed=0,
        # Of the classes, the settings have it.
        publish_retries=120 if spider.islower() else None,
        concurrency=window,
        policy=policy,
        agents=agents,
        keep_pages=keep_pages,
    )
    return start_run(job=job, now=timezone.now(), actor=None).pk


def look(*, run: int) -> dict[str, Any]:
    """The run, its books and its centers' now."""
    from apps.agents.queries import newest_allocation
    from apps.jobs.models import Run
    from apps.jobs.states import FINAL
    from apps.queuestats.models import FailedRequest
    from apps.queuestats.queries import center_totals, run_totals

    row = Run.objects.get(pk=run)
    books = run_totals([row.owner])[row.owner]
    allocation = newest_allocation(row.owner)
    failed = FailedRequest.objects.filter(owner=row.owner).order_by("id")
    return {
        "state": row.state,
        "ended": row.state in FINAL,
        "reason": row.reason,
        "pid": row.pid,
        "reported": books.reported,
        "books": books.as_dict(),
        "center": center_totals([row.owner])[row.owner].as_dict(),
        "failures": list(failed.values("url", "reason")),
        "allocated": [agent.agent_id for agent in allocation.agents.all()] if allocation else [],
    }


def agents() -> dict[str, Any]:
    """Each agent's boot, time of registration and time of its last heartbeat."""
    from apps.agents.models import Agent

    return {
        agent.agent_id: {
            "boot": agent.boot,
            "registered": agent.registered_at.timestamp() if agent.registered_at else 0.0,
            "heard": agent.heartbeat_at.timestamp() if agent.heartbeat_at else 0.0,
        }
        for agent in Agent.objects.all()
    }


def only(*, agents: list[str]) -> None:
    """New runs get these agents and no others."""
    from apps.agents.models import Agent
    from apps.agents.states import AgentMode

    Agent.objects.exclude(agent_id__in=agents).update(mode=AgentMode.DRAINING)


def limit_host(*, requests_per_second: float) -> None:
    """How often the sites of the tests may be asked; 0 takes the rule away."""
    from apps.agents.hosts.models import HostRule
    from apps.agents.hosts.services import create_rule, delete_rule

    for rule in HostRule.objects.filter(host="127.0.0.1"):
        delete_rule(rule=rule, actor=None)
    if requests_per_second:
        create_rule(actor=None, host="127.0.0.1", requests_per_second=requests_per_second)


def token(*, run: int) -> str:
    """What a run proves itself with."""
    from django.conf import settings

    from yardkit.tokens import sign_run_token

    return sign_run_token(settings.SECRET_KEY, run)


def plan(*, name: str) -> str:
    """A job of every minute that was due a minute ago, and nobody is told; when it was made."""
    from datetime import timedelta

    from django.utils import timezone

    from apps.jobs.models import Job, Schedule
    from apps.jobs.services import sync_schedule

    now = timezone.now()
    job = Job.objects.create(
        project=project("failures"), name=name, command=["true"], overlap="allow", cron="* * * * *"
    )
    sync_schedule(job=job, now=now - timedelta(minutes=2))
    Schedule.objects.filter(job=job).update(next_at=now - timedelta(minutes=1))
    return now.isoformat()


def planned(*, name: str) -> dict[str, Any]:
    """Until when the job is planned, each of its times, and how many of them have runs."""
    from apps.jobs.models import PlannedRun, Run, Schedule

    schedule = Schedule.objects.get(job__name=name)
    rows = PlannedRun.objects.filter(schedule=schedule)
    return {
        "through": schedule.planned_through.isoformat() if schedule.planned_through else "",
        "times": [row.planned_at.isoformat() for row in rows],
        "with_runs": rows.exclude(run=None).count(),
        "runs": Run.objects.filter(job__name=name).count(),
    }


def slugs() -> list[str]:
    """Of all projects."""
    from apps.projects.models import Project

    return list(Project.objects.values_list("slug", flat=True))


def retry(*, run: int) -> int:
    """A run that makes the failed requests of this one again; its id."""
    from django.utils import timezone

    from apps.datasets.services.request_retries import retry_requests
    from apps.jobs.models import Run

    found = retry_requests(run=Run.objects.get(pk=run), actor=None, now=timezone.now())
    assert found.left_out == {}
    return found.run.pk


def requests(*, run: int) -> dict[str, Any]:
    """The rows of a run's requests, what became of its pages, and which run it is of."""
    from apps.datasets.engine.item_types import ItemQuery
    from apps.datasets.queries.kept_pages import page_accounting
    from apps.datasets.queries.requests import data_of_requests, open_requests, request_accounting
    from apps.jobs.models import Run

    row = Run.objects.get(pk=run)
    rows: list[dict[str, Any]] = []
    after = ""
    with open_requests(row) as reader:
        while True:
            page = reader.page(ItemQuery(limit=1000, after=after))
            rows += [item.data for item in page.items]
            after = page.next
            if not after:
                break
    return {
        "rows": [[each["url"], each["outcome"]] for each in rows],
        "accounting": request_accounting(row, data_of_requests(row)).as_dict(),
        "pages": page_accounting(row).as_dict(),
        "of": row.requests_of_id,
        "job": row.job_id,
    }


QUESTIONS = {
    one.__name__: one
    for one in (
        *(start, look, agents, only, limit_host, token, plan, planned, slugs),
        *(retry, requests),
    )
}


def answer(name: str, arguments: dict[str, Any]) -> Any:
    """Asked once more of a database that has just dropped its connections."""
    from django.db import InterfaceError, OperationalError, connection

    try:
        return QUESTIONS[name](**arguments)
    except (InterfaceError, OperationalError):
        connection.close()
        return QUESTIONS[name](**arguments)


if __name__ == "__main__":
    answer_questions(answer)
