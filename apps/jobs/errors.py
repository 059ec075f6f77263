"""Errors of jobs, runs and hosts; each class has a stable code."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError, Text


class JobsError(DomainError):
    """Base class of the errors of this app."""

    code = "jobs_error"


class JobDisabled(JobsError):
    """A run of a disabled job was requested."""

    code = "job_disabled"


class JobRunning(JobsError):
    """A run of the job is active, and the job allows only one active run."""

    code = "job_running"

    def __init__(self, detail: Text, *, run: int) -> None:
        super().__init__(detail)
        self.run = run


class TooManyWaiting(JobsError):
    """The job's queue of waiting runs is full."""

    code = "too_many_waiting"


class JobHasRuns(JobsError):
    """A job with active runs cannot be deleted."""

    code = "job_has_runs"


class JobDeleted(JobsError):
    """The job was deleted since it was read."""

    code = "job_deleted"
    detail = _("This job has been deleted.")


class RunNotActive(JobsError):
    """The run has already ended."""

    code = "run_not_active"


class MoveRefused(JobsError):
    """The run's state does not allow this action."""

    code = "move_refused"


class BadPace(JobsError):
    """The window or speed is out of range."""

    code = "bad_pace"
    status = 422


class LinkCycle(JobsError):
    """The link would form a cycle of jobs."""

    code = "link_cycle"
    status = 422


class LinkExists(JobsError):
    """The two jobs are linked already."""

    code = "link_exists"


class HostOnline(JobsError):
    """A host whose runner is online cannot be deleted."""

    code = "host_online"


class JobNameTaken(JobsError):
    """Another job of the project has this name."""

    code = "job_name_taken"
    detail = _("A job of this name already exists in the project.")


class TrialNeeded(JobsError):
    """The job takes another image only after a trial of it."""

    code = "trial_needed"
    detail = _("The job takes another image only after a trial of it that has passed.")


class NothingRecorded(JobsError):
    """No run of the job has kept pages."""

    code = "nothing_recorded"
    detail = _("No ended run of the job has kept pages. Set which pages are kept, then run it.")


class TrialNotEnded(JobsError):
    """A trial that is still running cannot be used."""

    code = "trial_not_ended"
    detail = _("The trial has not ended.")


class TrialNoteNeeded(JobsError):
    """An image without a passed trial is activated with a note only."""

    code = "trial_note_needed"
    status = 422
    detail = _("The trial was not passed: say why the image is used all the same.")


class ImportRefused(JobsError):
    """A job file has errors; nothing was imported."""

    code = "import_refused"
    status = 422


class TooManyJobs(JobsError):
    """More jobs were requested than one file may hold."""

    code = "too_many_jobs"
    status = 422


class SecretsUnreadable(JobsError):
    """No key of this installation decrypts the stored secrets."""

    code = "secrets_unreadable"
    detail = _("The stored secrets cannot be decrypted with the keys of this installation.")
