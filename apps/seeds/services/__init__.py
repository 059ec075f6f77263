"""Services of frontiers, and clients of the seed service."""

from apps.seeds.services.clients import client_of, manager_of
from apps.seeds.services.frontiers import create_frontier, delete_frontier, update_frontier
from apps.seeds.services.granularity import change as change_granularity
from apps.seeds.services.granularity import preview as preview_granularity
from apps.seeds.services.management import (
    drop_segment,
    find_seed,
    forget,
    look_up,
    reopen,
    reopen_failed,
    show_segments,
)
from apps.seeds.services.operations import (
    cancel_operation,
    start_operation,
    sweep_operations,
    work_on_operation,
)

__all__ = [
    "cancel_operation",
    "change_granularity",
    "client_of",
    "create_frontier",
    "delete_frontier",
    "drop_segment",
    "find_seed",
    "forget",
    "look_up",
    "manager_of",
    "preview_granularity",
    "reopen",
    "reopen_failed",
    "show_segments",
    "start_operation",
    "sweep_operations",
    "update_frontier",
    "work_on_operation",
]
