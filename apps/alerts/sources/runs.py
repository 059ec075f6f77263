"""Runs that fail, are lost, start late or do not start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from django.db.models import CharField, OuterRef, QuerySet, Subquery
from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.events import ConditionSource, EventSource, Occurrence, truncated_to
from apps.alerts.sources.newest import oldest_to_read
from apps.alerts.sources.pages import change_page, list_page
from apps.jobs.models import Job, PlannedRun, Run, RunMove
from apps.jobs.states import PlanOutcome, RunState

# Number of newest rows read by ID: times have no index here.
NEWEST: Final = 20_000
REASON: Final = 200
# Limit of reported waiting runs.
MOST: Final = 5_000
_ENDS: Final = (RunState.EXITED, RunState.FAILED, RunState.LOST)


class RunEnded:
    """Runs that ended with an error; recovers when a later run of the job succeeds."""

    advice: object = _("Check the end of its log, fix the cause and start the job again.")
    facts: tuple[str, ...] = ("job", "run", "reason")

    def __init__(self, name: str, title: object, sentence: object, state: RunState) -> None:
        self.name = name
        self.title = title
        self.sentence = sentence
        self._state = state

    def since(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one event per run."""
        rows = RunMove.objects.filter(
            pk__gt=_oldest(RunMove, "at", at), to_state=self._state, at__gte=at, run__replay_of=None
        )
        for move in rows.select_related("run__job").order_by("pk"):
            run = move.run
            yield Occurrence(
                id=f"run:{run.pk}",
                project=run.job.project_id,
                key=f"job:{run.job_id}",
                at=move.at,
                facts={
                    "job": run.job.name,
                    "run": run.pk,
                    "reason": (run.reason or move.reason)[:REASON],
                },
                address=change_page("jobs/run", run.pk),
            )

    def over(self, open_keys: Mapping[str, datetime], at: datetime) -> set[str]:
        """Return the jobs whose newest finished run succeeded."""
        ends = Run.objects.live().filter(job=OuterRef("pk"), state__in=_ENDS).order_by("-pk")
        states = _of_jobs(open_keys, ends.values("state"))
        return {key for key, state in states.items() if state == RunState.EXITED}


class PlannedRunProblem:
    """Planned runs with a given outcome; recovers when a later one starts in time."""

    advice: object = _(
        "Check for an earlier active run and for free slots; start the job manually if needed."
    )
    facts: tuple[str, ...] = ("job", "planned_at", "reason")

    def __init__(self, name: str, title: object, sentence: object, outcome: PlanOutcome) -> None:
        self.name = name
        self.title = title
        self.sentence = sentence
        self._outcome = outcome

    def since(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one event per planned run."""
        rows = PlannedRun.objects.filter(
            pk__gt=_oldest(PlannedRun, "decided_at", at), outcome=self._outcome, decided_at__gte=at
        )
        for row in rows.select_related("schedule__job").order_by("pk"):
            job = row.schedule.job
            yield Occurrence(
                id=f"planned:{row.pk}",
                project=job.project_id,
                key=f"job:{job.pk}",
                at=row.decided_at,
                facts={
                    "job": job.name,
                    "planned_at": row.planned_at.isoformat(timespec="minutes"),
                    "reason": row.reason[:REASON],
                },
                address=list_page("jobs/plannedrun", f"schedule__job__id__exact={job.pk}"),
            )

    def over(self, open_keys: Mapping[str, datetime], at: datetime) -> set[str]:
        """Return the jobs whose newest planned run started in time."""
        planned = PlannedRun.objects.filter(schedule__job=OuterRef("pk")).order_by("-planned_at")
        outcomes = _of_jobs(open_keys, planned.values("outcome"))
        return {key for key, outcome in outcomes.items() if outcome == PlanOutcome.STARTED}


class RunWaiting:
    """Runs that no host starts, for lack of capacity or of a suitable host."""

    name = "run.waiting"
    title: object = _("a run waits for a host")
    sentence: object = _("job %(job)s: run %(run)s waits to be started (%(reason)s)")
    advice: object = _("Check the hosts: a matching host must be online and have a free slot.")
    facts: tuple[str, ...] = ("job", "run", "reason")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per run, except those waiting for another run or their start
        time."""
        rows = Run.objects.untaken(at).select_related("job")
        for run in truncated_to(rows[: MOST + 1], MOST):
            due = max(run.created_at, run.not_before or run.created_at)
            yield Occurrence(
                id=f"run:{run.pk}",
                project=run.job.project_id,
                key=f"run:{run.pk}",
                at=due,
                facts={"job": run.job.name, "run": run.pk, "reason": run.waiting_reason[:REASON]},
                address=change_page("jobs/run", run.pk),
            )


def _oldest(model: type[RunMove] | type[PlannedRun], field: str, at: datetime) -> int:
    return oldest_to_read(model, field, at=at, page=NEWEST)


def _job_of(key: str) -> int:
    return int(key.removeprefix("job:"))


def _of_jobs(open_keys: Iterable[str], newest: QuerySet[Any]) -> dict[str, str | None]:
    """Return one value per job, from rows that refer to their job by ``OuterRef``."""
    jobs = Job.objects.filter(pk__in=[_job_of(key) for key in open_keys]).order_by()
    values = jobs.values_list("pk", Subquery(newest[:1], output_field=CharField()))
    return {f"job:{pk}": value for pk, value in values}


SOURCES: Final[tuple[EventSource | ConditionSource, ...]] = (
    RunEnded(
        "run.failed",
        _("a run failed"),
        _("job %(job)s: run %(run)s failed (%(reason)s)"),
        RunState.FAILED,
    ),
    RunEnded(
        "run.lost",
        _("a run was lost"),
        _("job %(job)s: run %(run)s was lost (%(reason)s)"),
        RunState.LOST,
    ),
    PlannedRunProblem(
        "run.late",
        _("a planned run started late"),
        _("job %(job)s: the run planned for %(planned_at)s started late"),
        PlanOutcome.LATE,
    ),
    PlannedRunProblem(
        "run.missed",
        _("a planned run was missed"),
        _("job %(job)s: the run planned for %(planned_at)s was missed (%(reason)s)"),
        PlanOutcome.MISSED,
    ),
    RunWaiting(),
)
