"""Models of jobs, schedules, links between jobs, runs and hosts."""

from apps.jobs.models.host import Host
from apps.jobs.models.job import (
    MAX_CONCURRENCY,
    MAX_SPEED,
    DeletedJob,
    Job,
    JobLink,
    job_contradictions,
)
from apps.jobs.models.options import (
    OPTIONS,
    DownloaderKind,
    DownloadPolicy,
    PagesKept,
    contradictions,
)
from apps.jobs.models.run import Run, RunCommand, RunMove
from apps.jobs.models.schedule import PlannedRun, Schedule
from apps.jobs.models.trial import ImageTrial
from apps.jobs.models.validators import check_cookies, parse_cookies

__all__ = [
    "MAX_CONCURRENCY",
    "MAX_SPEED",
    "OPTIONS",
    "DeletedJob",
    "DownloadPolicy",
    "DownloaderKind",
    "Host",
    "ImageTrial",
    "Job",
    "JobLink",
    "PagesKept",
    "PlannedRun",
    "Run",
    "RunCommand",
    "RunMove",
    "Schedule",
    "check_cookies",
    "contradictions",
    "job_contradictions",
    "parse_cookies",
]
