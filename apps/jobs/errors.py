"""What jobs and runs refuse, each with a stable code."""

from __future__ import annotations

from apps.access.errors import DomainError


class JobsError(DomainError):
    """Base of this app's refusals."""

    code = "jobs_error"


class JobDisabled(JobsError):
    """A run of a disabled job was asked for."""

    code = "job_disabled"


class JobHasRuns(JobsError):
    """A job with runs cannot be deleted."""

    code = "job_has_runs"


class RunNotActive(JobsError):
    """An action on a run that has already ended."""

    code = "run_not_active"


class MoveRefused(JobsError):
    """The run is not in a state from which this move is allowed."""

    code = "move_refused"
