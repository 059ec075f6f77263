"""What runs have done since their last reports: the totals of their jobs, and rates of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apps.queuestats.queries.series import SeriesKey
from apps.queuestats.services.series_readings import SeriesReading, add_readings, seconds_between
from apps.queuestats.services.upsert import Upsert
from yardkit.protocol import SampleKind

# What the totals of a job are made of.
JOB_SUMMED: Final = ("total", "success", "failed", "pages", "items", "bytes_received")
# Series of runs and of jobs, with their names behind the dot, and what they add up.
RATES: Final[dict[str, tuple[str, ...]]] = {
    "requests": ("success", "failed"),
    "failures": ("failed",),
    "pages": ("pages",),
    "items": ("items",),
    "bytes": ("bytes_received",),
}
# A report is spread over the time since the one before it, and at most over so long.
LONGEST_SECONDS: Final = 10.0
_JOBS: Final = Upsert(
    table="queuestats_jobcounter",
    columns={
        "job_id": "bigint",
        **dict.fromkeys(JOB_SUMMED, "bigint"),
        "updated_at": "timestamptz",
    },
    key=("job_id",),
    change=", ".join(
        [f"{name} = queuestats_jobcounter.{name} + excluded.{name}" for name in JOB_SUMMED]
        + ["updated_at = excluded.updated_at"]
    ),
)
# Nobody knows since when a first report counts; reports are a second apart.
FIRST: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class CounterIncrease:
    """By how much the counters of one execution of a run are higher than when it last reported.

    ``since``: when that was; None: it is the first report.
    """

    run: int
    job: int
    project: int
    since: datetime | None
    amounts: Mapping[str, int]


def add_increases(grown: Sequence[CounterIncrease], *, now: datetime) -> None:
    """Add it to the jobs' totals and to the series ``run.*`` and ``job.*`` (seed S1.17, S4.24).

    In the transaction that stores the counters: a report that comes again has grown by nothing.
    """
    jobs: dict[int, dict[str, int]] = {}
    for each in grown:
        own = jobs.setdefault(each.job, dict.fromkeys(JOB_SUMMED, 0))
        for name, amount in each.amounts.items():
            own[name] += amount
    _write_jobs(jobs, now)
    readings = [reading for each in grown for reading in _readings(each, now)]
    if readings:
        add_readings(readings)


def _write_jobs(jobs: Mapping[int, Mapping[str, int]], now: datetime) -> None:
    _JOBS.write([(job, *(own[name] for name in JOB_SUMMED), now) for job, own in jobs.items()])


def _readings(each: CounterIncrease, now: datetime) -> list[SeriesReading]:
    """Evenly over the seconds since the report before."""
    seconds = seconds_between(each.since or now - FIRST, now, LONGEST_SECONDS)
    places = (("run", str(each.run)), ("job", str(each.job)))
    found: list[SeriesReading] = []
    for name, parts in RATES.items():
        amount = sum(each.amounts[part] for part in parts)
        # A counter that falls is a fault of its run, which its totals show; a rate cannot fall.
        if amount <= 0:
            continue
        share = amount / len(seconds)
        for what, label in places:
            key = SeriesKey(f"{what}.{name}", each.project, label)
            found += [(key, SampleKind.SUM, second, 1, share, 1, 0.0) for second in seconds]
    return found
