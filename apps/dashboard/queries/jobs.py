"""Data of the page of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from apps.alerts.models import Incident
from apps.alerts.queries import open_incidents
from apps.dashboard.queries.home import RunRow
from apps.jobs.engine.cron_words import cron_words
from apps.jobs.models import Job, JobLink, Run
from apps.jobs.queries import ScheduleFacts, image_description, schedule_facts
from apps.queuestats.queries import run_totals
from apps.queuestats.queries.job_days import Period, job_period

SHOWN_RUNS: Final = 8
RUNS_A_PAGE: Final = 50


@dataclass(frozen=True, slots=True)
class Override:
    """A setting of the spider class that the job sets itself; ``own``: None if it is unknown."""

    name: str
    value: Any
    own: Any = None


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of the spider: its value, and whether the job gives it."""

    name: str
    value: Any
    is_given: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class JobView:
    """Content of the tab "Overview" of a job."""

    job: Job
    runs: list[RunRow]
    active: int
    schedule: ScheduleFacts
    words: str
    period: Period
    overrides: list[Override] = field(default_factory=list)
    arguments: list[Argument] = field(default_factory=list)
    after: list[JobLink] = field(default_factory=list)
    followers: list[JobLink] = field(default_factory=list)

    @property
    def last(self) -> RunRow | None:
        """The newest run."""
        return self.runs[0] if self.runs else None


def job_view(job: Job, *, days: int, now: datetime) -> JobView:
    """Return the overview of a job, in ten queries."""
    return JobView(
        job=job,
        runs=runs_of(job, limit=SHOWN_RUNS),
        active=job.runs.active().count(),
        schedule=schedule_facts(job, now=now),
        words=cron_words(job.cron),
        period=job_period(job, days=days, now=now),
        **_settings(job),
        after=list(job.links.select_related("after")),
        followers=list(job.followers.select_related("job")),
    )


def runs_of(job: Job, *, limit: int, before: int | None = None) -> list[RunRow]:
    """Return the newest runs of a job, those before a run, with their totals. Two queries."""
    rows = Run.objects.filter(job=job).select_related("job__project").order_by("-id")
    if before is not None:
        rows = rows.filter(pk__lt=before)
    runs = list(rows[:limit])
    totals = run_totals(run.owner for run in runs)
    return [RunRow(run, totals[run.owner]) for run in runs]


def incidents_of(user: object, job: Job) -> list[Incident]:
    """Return the open incidents about a job or its runs, of the open ones that a page shows."""
    keys = (f"job:{job.pk}", f"job:{job.pk}:")
    return [
        incident
        for incident in open_incidents(user)
        if incident.key == keys[0]
        or incident.key.startswith(keys[1])
        or incident.facts.get("job") in (job.pk, job.name)
    ]


def _settings(job: Job) -> dict[str, Any]:
    """Return what the job sets, beside what its image says of the spider. One query."""
    described = image_description(job.image) if job.image_id else None
    spider = (described.spider(job.spider) if described else None) or {}
    own = spider.get("settings") or {}
    declared = {each["name"]: each for each in spider.get("arguments", [])}
    names = list(dict.fromkeys([*declared, *job.arguments]))
    return {
        "overrides": [
            Override(name, value, own.get(name)) for name, value in job.spider_settings().items()
        ],
        "arguments": [
            Argument(
                name,
                job.arguments.get(name, declared.get(name, {}).get("default")),
                name in job.arguments,
                str(declared.get(name, {}).get("description") or ""),
            )
            for name in names
        ],
    }
