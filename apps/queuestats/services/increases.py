"""Adds the increases between two counter reports of a run to its job's totals and to rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apps.queuestats.queries.series import SeriesKey
from apps.queuestats.services.job_days import COUNTED, add_to_days
from apps.queuestats.services.series_readings import SeriesReading, add_readings, seconds_between
from apps.queuestats.services.upsert import Upsert
from yardkit.protocol import SampleKind

# Counters of runs that are summed up per job.
JOB_SUMMED: Final = ("total", "success", "failed", "pages", "items", "bytes_received")
# Series ``run.<name>`` and ``job.<name>``, and the counters that each sums.
RATES: Final[dict[str, tuple[str, ...]]] = {
    "requests": ("success", "failed"),
    "failures": ("failed",),
    "pages": ("pages",),
    "items": ("items",),
    "bytes": ("bytes_received",),
}
# An increase is distributed over the seconds since the previous report, but at most this many.
MAX_SECONDS: Final = 10.0
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
# Time covered by the first report of an execution: reports are sent once a second.
FIRST_REPORT: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class CounterIncrease:
    """Difference between two successive counter reports of one execution of a run.

    ``since`` is the time of the earlier report; None if there was none. ``is_replay``: the run
    reads kept pages.
    """

    run: int
    job: int
    project: int
    since: datetime | None
    amounts: Mapping[str, int]
    is_replay: bool = False


def add_increases(increases: Sequence[CounterIncrease], *, now: datetime) -> None:
    """Add increases to the totals of jobs and to the series ``run.*`` and ``job.*``.

    Call it in the transaction that stores the counters: the increase of a
    redelivered report is then 0.
    """
    _write_jobs(_by_job(increases), now)
    days = _by_job([increase for increase in increases if not increase.is_replay])
    add_to_days({job: {n: totals[n] for n in COUNTED} for job, totals in days.items()}, now=now)
    readings = [reading for increase in increases for reading in _readings(increase, now)]
    if readings:
        add_readings(readings)


def _by_job(increases: Sequence[CounterIncrease]) -> dict[int, dict[str, int]]:
    jobs: dict[int, dict[str, int]] = {}
    for increase in increases:
        totals = jobs.setdefault(increase.job, dict.fromkeys(JOB_SUMMED, 0))
        for name, amount in increase.amounts.items():
            totals[name] += amount
    return jobs


def _write_jobs(jobs: Mapping[int, Mapping[str, int]], now: datetime) -> None:
    _JOBS.write(
        [(job, *(totals[name] for name in JOB_SUMMED), now) for job, totals in jobs.items()]
    )


def _readings(increase: CounterIncrease, now: datetime) -> list[SeriesReading]:
    seconds = seconds_between(increase.since or now - FIRST_REPORT, now, MAX_SECONDS)
    owners = (("run", str(increase.run)), ("job", str(increase.job)))
    readings: list[SeriesReading] = []
    for name, parts in RATES.items():
        amount = sum(increase.amounts[part] for part in parts)
        # A falling counter is a defect of its run, shown by its totals; a rate is never negative.
        if amount <= 0:
            continue
        share = amount / len(seconds)
        for owner, label in owners:
            key = SeriesKey(f"{owner}.{name}", increase.project, label)
            readings += [(key, SampleKind.SUM, second, 1, share, 1, 0.0) for second in seconds]
    return readings
