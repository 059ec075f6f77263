"""Admin of failed requests, queues, and runs with their totals."""

from apps.queuestats.admin.failures import FailedRequestAdmin
from apps.queuestats.admin.queues import QueueStateAdmin
from apps.queuestats.admin.runs import RunAdmin
from apps.queuestats.admin.stats import RunStatsAdmin

__all__ = ["FailedRequestAdmin", "QueueStateAdmin", "RunAdmin", "RunStatsAdmin"]
