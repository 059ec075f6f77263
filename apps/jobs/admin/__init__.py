"""Admin classes of jobs, planned runs and hosts; the admin of runs is in apps.queuestats."""

from apps.jobs.admin.deleted import DeletedJobAdmin
from apps.jobs.admin.hosts import HostAdmin
from apps.jobs.admin.jobs import JobAdmin
from apps.jobs.admin.planned import PlannedRunAdmin

__all__ = ["DeletedJobAdmin", "HostAdmin", "JobAdmin", "PlannedRunAdmin"]
