"""A sample job with a made-up history: usual yields, and a last run that deviates."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.utils import timezone

from apps.alerts.services.yields import record_yields
from apps.jobs.models import Job, Run, RunMove
from apps.jobs.states import RunState, Trigger
from apps.projects.models import Project
from apps.queuestats.services import store_counters
from apps.queuestats.services.job_days import add_ended_run
from crawlyard.demo.job import SPIDER
from yardkit.protocol import RunCounters

NAME: Final = "Made-up shop"
DAYS: Final = 35
# Fewer items at weekends.
_WEEKDAYS: Final = (1200, 1250, 1230, 1210, 1300, 500, 450)
_SHARES: Final = {"url": 1.0, "title": 1.0, "price": 0.99, "seller.name": 0.93, "discount": 0.3}
_ITEMS_OF_THE_LAST: Final = 180
_PAGE_BYTES: Final = 24_000


def make() -> bool:
    """Add the job with one run a day unless it exists; return whether it was added.

    Every run is marked as made up.
    """
    project = Project.objects.get(slug="demo")
    if Job.objects.filter(project=project, name=NAME).exists():
        return False
    now = timezone.now()
    with transaction.atomic():
        job = Job.objects.create(
            project=project,
            name=NAME,
            spider=SPIDER,
            notes="Its runs are made up, to show what the yield of a job looks like.",
        )
        dice = random.Random(7)  # noqa: S311 - sample figures
        for at in _days(now):
            last = at == now
            items = _ITEMS_OF_THE_LAST if last else _usual(at, dice)
            _add_run(job, at, items, _fields(items, dice, last=last))
    # The monitor evaluates runs that ended after the last stored yield.
    record_yields(now=now, since=now - timedelta(days=DAYS + 1))
    return True


def _days(now: datetime) -> Iterator[datetime]:
    for ago in range(DAYS, -1, -1):
        yield now - timedelta(days=ago)


def _usual(at: datetime, dice: random.Random) -> int:
    return round(_WEEKDAYS[at.weekday()] * dice.gauss(1.0, 0.05))


def _fields(items: int, dice: random.Random, *, last: bool) -> dict[str, int]:
    shares = _SHARES | ({"price": 0.4} if last else {})
    fields = {
        name: min(items, round(items * share * dice.gauss(1, 0.01)))
        for name, share in shares.items()
    }
    return fields | {"seller": fields["seller.name"], "url": items}


def _add_run(job: Job, at: datetime, items: int, fields: dict[str, int]) -> None:
    began = at - timedelta(minutes=8)
    run = Run.objects.create(
        job=job,
        state=RunState.EXITED,
        reason="made up by manage.py demo",
        trigger=Trigger.CRON,
        created_at=began,
        started_at=began,
        ended_at=at,
        exit_code=0,
        requests_total=items // 20 + 1,
        requests_failed=0,
        items=items,
        exceptions=0,
    )
    RunMove.objects.create(
        run=run, to_state=RunState.EXITED, at=at, actor="demo", reason=run.reason
    )
    pages = items // 20 + 1
    message = RunCounters(
        run=run.pk,
        boot="demo",
        seq=1,
        total=pages,
        success=pages,
        sent=pages,
        returned=pages,
        pages=pages,
        items=items,
        bytes_received=pages * _PAGE_BYTES,
        fields=fields,
        final=True,
    )
    store_counters(messages=[message], now=at)
    add_ended_run(run, now=at)
