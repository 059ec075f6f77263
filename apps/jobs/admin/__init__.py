"""The admin of this app. Runs are shown with their counters, so apps.queuestats has theirs."""

from apps.jobs.admin.jobs import JobAdmin

__all__ = ["JobAdmin"]
