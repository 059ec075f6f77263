"""Events by which open browser pages learn that a run has changed."""

from __future__ import annotations

from apps.jobs.events import RUN_CHANGED
from apps.jobs.models import Run
from apps.runtime.services import emit


def notify(run: Run) -> None:
    """Emit ``RUN_CHANGED`` when the transaction commits."""
    emit(
        RUN_CHANGED,
        project=run.job.project_id,
        payload={"run": run.pk, "job": run.job_id, "state": run.state, "reason": run.reason},
    )
