"""Jobs, their runs, and each move of a run."""

from apps.jobs.models.job import Job
from apps.jobs.models.options import OPTIONS, DownloaderKind, DownloadPolicy, contradictions
from apps.jobs.models.run import Run, RunMove
from apps.jobs.models.validators import check_cookies, parse_cookies

__all__ = [
    "OPTIONS",
    "DownloadPolicy",
    "DownloaderKind",
    "Job",
    "Run",
    "RunMove",
    "check_cookies",
    "contradictions",
    "parse_cookies",
]
