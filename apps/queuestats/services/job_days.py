"""Daily figures of jobs: increased by counter reports and by the ends of runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from apps.jobs.models import Run
from apps.jobs.states import RunOutcome
from apps.queuestats.models import JobDay
from apps.queuestats.services.upsert import Upsert

COUNTED: Final = ("success", "failed", "pages", "items", "bytes_received")
_OF_RUNS: Final = (
    "runs_succeeded",
    "runs_with_errors",
    "runs_failed",
    "runs_cancelled",
    "run_seconds",
)
_COLUMN_BY_OUTCOME: Final = {
    RunOutcome.SUCCEEDED: "runs_succeeded",
    RunOutcome.FINISHED_WITH_ERRORS: "runs_with_errors",
    RunOutcome.FAILED: "runs_failed",
    RunOutcome.LOST: "runs_failed",
    RunOutcome.CANCELLED: "runs_cancelled",
}
_NAMES: Final = (*COUNTED, *_OF_RUNS)
_DAYS: Final = Upsert(
    table="queuestats_jobday",
    columns={"job_id": "bigint", "day": "date", **dict.fromkeys(_NAMES, "bigint")},
    key=("job_id", "day"),
    change=", ".join(f"{name} = queuestats_jobday.{name} + excluded.{name}" for name in _NAMES),
)
KEPT: Final = timedelta(days=400)


def add_to_days(amounts: Mapping[int, Mapping[str, int]], *, now: datetime) -> None:
    """Add amounts by job to the figures of the current day. One statement."""
    day = now.astimezone(UTC).date().isoformat()
    _DAYS.write(
        [
            (job, day, *(values.get(name, 0) for name in _NAMES))
            for job, values in amounts.items()
            if any(values.values())
        ]
    )


def add_ended_run(run: Run, *, now: datetime) -> None:
    """Count an ended run by its outcome; a run on kept pages says nothing about the sites."""
    if run.outcome is None or run.replay_of_id is not None:
        return
    amounts = {_COLUMN_BY_OUTCOME[run.outcome]: 1}
    if run.started_at is not None and run.ended_at is not None:
        amounts["run_seconds"] = round((run.ended_at - run.started_at).total_seconds())
    add_to_days({run.job_id: amounts}, now=now)


def delete_old_days(*, now: datetime) -> int:
    """Delete figures beyond their retention; return the number of rows."""
    return JobDay.objects.filter(day__lt=(now - KEPT).date()).delete()[0]
