"""The admin of this app. Runs are shown with their counters, so apps.queuestats has theirs."""

from apps.jobs.admin.deleted import DeletedJobAdmin
from apps.jobs.admin.hosts import HostAdmin
from apps.jobs.admin.jobs import JobAdmin
from apps.jobs.admin.planned import PlannedRunAdmin

__all__ = ["DeletedJobAdmin", "HostAdmin", "JobAdmin", "PlannedRunAdmin"]
