"""Letting the pages know of a run."""

from __future__ import annotations

from apps.jobs.events import RUN_CHANGED
from apps.jobs.models import Run
from apps.runtime.services import emit


def notify(run: Run) -> None:
    """Let the pages know at the commit."""
    emit(
        RUN_CHANGED,
        project=run.job.project_id,
        payload={"run": run.pk, "job": run.job_id, "state": run.state, "reason": run.reason},
    )
