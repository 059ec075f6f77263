"""What jobs and runs refuse, each with a stable code."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError, Text


class JobsError(DomainError):
    """Base of this app's refusals."""

    code = "jobs_error"


class JobDisabled(JobsError):
    """A run of a disabled job was asked for."""

    code = "job_disabled"


class JobRunning(JobsError):
    """An earlier run of the job is active, and the job lets only one run (seed S1.13)."""

    code = "job_running"

    def __init__(self, detail: Text, *, run: int) -> None:
        super().__init__(detail)
        self.run = run


class TooManyWaiting(JobsError):
    """As many runs of the job as may wait behind each other do so already."""

    code = "too_many_waiting"


class JobHasRuns(JobsError):
    """A job with runs that have not ended cannot be deleted."""

    code = "job_has_runs"


class JobDeleted(JobsError):
    """Somebody has deleted the job meanwhile."""

    code = "job_deleted"
    detail = _("This job has been deleted.")


class RunNotActive(JobsError):
    """An action on a run that has already ended."""

    code = "run_not_active"


class MoveRefused(JobsError):
    """The run is not in a state from which this move is allowed."""

    code = "move_refused"


class BadPace(JobsError):
    """No run can go by this window or this speed."""

    code = "bad_pace"
    status = 422


class LinkCycle(JobsError):
    """A link would close a circle of jobs that follow each other."""

    code = "link_cycle"
    status = 422


class LinkExists(JobsError):
    """There is a link between these two jobs already."""

    code = "link_exists"


class HostOnline(JobsError):
    """A host whose runner is there cannot be forgotten."""

    code = "host_online"


class JobNameTaken(JobsError):
    """Another job of the project has this name."""

    code = "job_name_taken"
    detail = _("A job of this name already exists in the project.")


class ImportRefused(JobsError):
    """A file of jobs is wrong somewhere: nothing of it was written."""

    code = "import_refused"
    status = 422


class TooManyJobs(JobsError):
    """More jobs were asked for at once than one file holds."""

    code = "too_many_jobs"
    status = 422


class SecretsUnreadable(JobsError):
    """No key of this installation opens what is stored."""

    code = "secrets_unreadable"
    detail = _("The stored secrets cannot be opened with the keys of this installation.")
