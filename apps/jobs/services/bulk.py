"""Actions on many runs: each in its own transaction; a refusal does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from apps.access.models import User
from apps.jobs.errors import JobsError
from apps.jobs.models import Job, Run
from apps.jobs.services.lifecycle import freeze_run, pause_run, restart_run, resume_run, thaw_run
from apps.jobs.services.stops import stop_run
from apps.jobs.states import RunAsk

DO: Final[dict[RunAsk, Callable[..., Any]]] = {
    RunAsk.PAUSE: pause_run,
    RunAsk.RESUME: resume_run,
    RunAsk.RESTART: restart_run,
    RunAsk.EXIT: stop_run,
    RunAsk.FREEZE: freeze_run,
    RunAsk.THAW: thaw_run,
}


@dataclass(frozen=True, slots=True)
class RunActionRefusal:
    """Refused action on a run, with the reason."""

    run: int
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class RunActionResult:
    """Result of an action on runs: IDs of the runs that accepted it, and the refusals."""

    done: list[int] = field(default_factory=list)
    refused: list[RunActionRefusal] = field(default_factory=list)


def act_on_run(*, run: Run, action: RunAsk, now: datetime, actor: User | None) -> None:
    """Perform an action on one run. Raises the exceptions of the action's service."""
    DO[action](run=run, now=now, actor=actor)


def act_on_runs(
    *, runs: Iterable[Run], action: RunAsk, now: datetime, actor: User | None
) -> RunActionResult:
    """Perform an action on each run in a separate transaction."""
    tally = RunActionResult()
    for run in runs:
        try:
            act_on_run(run=run, action=action, now=now, actor=actor)
        except JobsError as error:
            tally.refused.append(RunActionRefusal(run.pk, error.code, error.text))
        else:
            tally.done.append(run.pk)
    return tally


def pause_job(*, job: Job, now: datetime, actor: User | None) -> RunActionResult:
    """Pause every active run of a job."""
    return _act_on_job(job, RunAsk.PAUSE, now=now, actor=actor)


def resume_job(*, job: Job, now: datetime, actor: User | None) -> RunActionResult:
    """Resume every active run of a job."""
    return _act_on_job(job, RunAsk.RESUME, now=now, actor=actor)


def stop_job(*, job: Job, now: datetime, actor: User | None) -> RunActionResult:
    """Stop every active run of a job."""
    return _act_on_job(job, RunAsk.EXIT, now=now, actor=actor)


def _act_on_job(job: Job, action: RunAsk, *, now: datetime, actor: User | None) -> RunActionResult:
    """Act on the runs that are active now; runs that are queued later are not affected."""
    runs = job.runs.active().select_related("job__project").order_by("id")
    return act_on_runs(runs=runs, action=action, now=now, actor=actor)
