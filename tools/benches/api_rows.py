"""Rows for the bench of the lists: runs, stored requests and log lines, added to what is there.

Made the way they are made in service where that is fast enough; runs, which come one by one there,
are written as rows. Every step can be killed and goes on where it was.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection, transaction
from django.utils import timezone

from apps.configcenter.services import activate, save_version
from apps.joblogs.engine.lines import LogLine
from apps.joblogs.engine.moments import microseconds
from apps.joblogs.services import log_store
from apps.joblogs.stores.base import LineBatch
from apps.jobs.models import Job, Run
from apps.jobs.states import RunState
from apps.projects.models import Project
from apps.queuestats.models import RunCounter
from apps.requeststore.services.kind import KIND
from apps.requeststore.services.store import RequestStore
from apps.requeststore.stores.base import Finish, NewRequest, QueueEntry

PROJECTS: Final = 20
JOBS_A_PROJECT: Final = 10
DAYS: Final = 7
CHUNK: Final = 20_000
LINES_A_RUN: Final = 1000
BIZZES: Final = ("news", "shop")
# Of the newest runs, whose books the pages show.
COUNTED_RUNS: Final = 20_000
_STATES: Final = ((RunState.EXITED, 96), (RunState.FAILED, 3), (RunState.LOST, 1))

Say = Callable[[str], None]


def prepare() -> list[Job]:
    """Projects and jobs; the same at every start."""
    projects = [
        Project.objects.get_or_create(slug=f"bench-{number}", defaults={"name": f"Bench {number}"})
        for number in range(PROJECTS)
    ]
    jobs = []
    for project, made in projects:
        if made:
            _add_bizzes(project)
        for number in range(JOBS_A_PROJECT):
            job, _ = Job.objects.get_or_create(
                project=project, name=f"job {number}", defaults={"spider": "bench:Spider"}
            )
            jobs.append(job)
    return jobs


def _add_bizzes(project: Project) -> None:
    now = timezone.now()
    data: dict[str, Any] = {"bizzes": {name: {} for name in BIZZES}}
    saved = save_version(kind=KIND, project_id=project.pk, data=data, actor=None, now=now)
    activate(version=saved.version, actor=None, now=now)


def times(count: int, start: int, whole: int) -> Iterator[datetime]:
    """The times of rows ``start`` and following, of ``whole`` that fill the last days evenly."""
    begin = _began()
    step = timedelta(days=DAYS) / whole
    for number in range(start, start + count):
        yield begin + step * number


def _began() -> datetime:
    """Of all rows, at every start the same: when the first job was made, less the days."""
    first: datetime = Job.objects.order_by("pk").values_list("created_at", flat=True)[0]
    return first - timedelta(days=DAYS)


# --- runs --------------------------------------------------------------------------------------


def add_runs(jobs: list[Job], wanted: int, whole: int, say: Say) -> int:
    """Up to ``wanted`` of them; how many there are."""
    have = Run.objects.count()
    while have < wanted:
        count = min(CHUNK, wanted - have)
        with transaction.atomic():
            _insert_runs(jobs, have, count, whole)
        have += count
        say(f"{have:,} runs")
    _count_runs(jobs)
    return have


def _insert_runs(jobs: list[Job], start: int, count: int, whole: int) -> None:
    fields = [field for field in Run._meta.concrete_fields if not field.primary_key]
    template = Run(job=jobs[0], created_at=timezone.now())
    plain = [
        field.get_db_prep_save(field.pre_save(template, add=True), connection) for field in fields
    ]
    place = {field.attname: index for index, field in enumerate(fields)}
    dice = random.Random(start)  # noqa: S311 - figures to look at
    states = [state for state, share in _STATES for _ in range(share)]
    moment = Run._meta.get_field("created_at").get_db_prep_save
    rows = []
    for number, at in enumerate(times(count, start, whole), start):
        row = list(plain)
        ended = at + timedelta(seconds=dice.randrange(30, 3600))
        row[place["job_id"]] = jobs[number % len(jobs)].pk
        row[place["state"]] = str(dice.choice(states))
        row[place["host"]] = f"box-{number % 16}"
        row[place["created_at"]] = row[place["started_at"]] = moment(at, connection)
        row[place["ended_at"]] = moment(ended, connection)
        rows.append(tuple(row))
    names = ", ".join(connection.ops.quote_name(str(field.column)) for field in fields)
    marks = ", ".join(["%s"] * len(fields))
    with connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO jobs_run ({names}) VALUES ({marks})", rows)  # noqa: S608 - our own names


def _count_runs(jobs: list[Job]) -> None:
    """The books of the newest."""
    newest = list(Run.objects.order_by("-id").values_list("pk", "job_id")[:COUNTED_RUNS])
    projects = {job.pk: job.project_id for job in jobs}
    now = timezone.now()
    RunCounter.objects.bulk_create(
        (
            RunCounter(
                project_id=projects[job],
                owner=f"run:{run}",
                boot="bench",
                seq=1,
                total=100,
                success=99,
                failed=1,
                items=1000,
                agents={"a": 100},
                final=True,
                updated_at=now,
            )
            for run, job in newest
        ),
        ignore_conflicts=True,
        batch_size=500,
    )


# --- stored requests ---------------------------------------------------------------------------


def add_requests(yard: RequestStore, wanted: int, whole: int, say: Say) -> int:
    """Up to ``wanted`` over all bizzes, every fourth thousand of them processed."""
    bizzes = yard.bizzes()
    have = sum(
        yard.node(place.node).count(place.shard).total
        for bound in bizzes
        for place in bound.spread.places
    )
    data = b'{"url":"https://shop.example/item.html","meta":{"note":"' + b"x" * 300 + b'"}}'
    turn = have // 1000
    while have < wanted:
        bound = bizzes[turn % len(bizzes)]
        numbers = yard.reserve(1000)
        placed: dict[Any, list[NewRequest]] = {}
        for number, at in zip(numbers, times(1000, have, whole), strict=True):
            ts = int(at.timestamp() * 1000)
            place = bound.spread.place(number, yard.now())
            placed.setdefault(place, []).append(NewRequest(number, bound.name, ts, data))
        for place, requests in placed.items():
            yard.ensure(bound, place)
            node, shard = yard.node(place.node), place.shard
            node.insert(shard, requests, by="bench", now=yard.now())
            if turn % 4 == 0:
                entries = [QueueEntry(one.id, one.biz, one.ts) for one in requests]
                now = yard.now()
                node.take(shard, entries, owner="bench", now=now, cutoff=0, deadline=now + 60_000)
                ends = [Finish(one.id, 1, 1, b'{"status":200}') for one in requests]
                node.finish(shard, ends, owner="bench", now=yard.now())
        have += 1000
        turn += 1
        if not have % 100_000:
            say(f"{have:,} stored requests")
    return have


# --- log lines ---------------------------------------------------------------------------------


def add_lines(jobs: list[Job], wanted: int, whole: int, say: Say) -> int:
    """Up to ``wanted``, a thousand for each of so many runs."""
    store = log_store()
    have = sum(usage.lines for usage in store.usages())
    while have < wanted:
        # An earlier start may have been killed between two runs, never within one.
        batches = [
            _lines_of(jobs, have + number * LINES_A_RUN, whole)
            for number in range(min(5, (wanted - have) // LINES_A_RUN or 1))
        ]
        have += store.write(batches, now=timezone.now())
        if not have % 100_000:
            say(f"{have:,} log lines")
    return have


def run_with_lines(number: int) -> int:
    """The run whose log is the ``number``-th, from 0."""
    return 7 + number * 11


def _lines_of(jobs: list[Job], start: int, whole: int) -> LineBatch:
    run = run_with_lines(start // LINES_A_RUN)
    job = jobs[(run - 1) % len(jobs)]
    dice = random.Random(start)  # noqa: S311 - figures to look at
    lines = []
    for seq, at in enumerate(times(LINES_A_RUN, start, whole), 1):
        lines.append(_line(seq, microseconds(at), dice))
    return LineBatch(
        project=job.project_id,
        job=job.pk,
        stream=f"run:{run}",
        boot="bench",
        dropped=0,
        lines=lines,
    )


def _line(seq: int, micros: int, dice: random.Random) -> LogLine:
    page = dice.randrange(1_000_000)
    part = dice.random()
    if part < 0.02:
        text = f"cannot read the price of https://shop.example/item-{page}.html: KeyError: 'price'"
        return LogLine(seq, micros, "ERROR", "spider", text, f"{page % 500:016x}")
    if part < 0.08:
        return LogLine(seq, micros, "WARNING", "spider", f"页面 {page} 没有价格, 稍后重试")
    text = (
        f"GET https://shop.example/item-{page}.html 200 in {page % 900} ms, 商品 {page % 97} 已保存"
    )
    return LogLine(seq, micros, "INFO", "yardspider", text)
