"""Services of logs: all writes of this app, and the log store of the process."""

from apps.joblogs.services.groups import ignore_group, watch_group
from apps.joblogs.services.ingestion import RefusedBatch, store_lines
from apps.joblogs.services.log_pages import (
    LineCounts,
    LogPage,
    PageRequest,
    asked_store,
    count_groups,
    first_error,
    lines_of,
    read_log,
    search_lines,
)
from apps.joblogs.services.policies import add_policy, change_policy, remove_policy
from apps.joblogs.services.retention import prune_lines
from apps.joblogs.services.store import close_log_store, log_store

__all__ = [
    "LineCounts",
    "LogPage",
    "PageRequest",
    "RefusedBatch",
    "add_policy",
    "asked_store",
    "change_policy",
    "close_log_store",
    "count_groups",
    "first_error",
    "ignore_group",
    "lines_of",
    "log_store",
    "prune_lines",
    "read_log",
    "remove_policy",
    "search_lines",
    "store_lines",
    "watch_group",
]
