"""What may be done to frontiers, and how the seed service is asked."""

from apps.seeds.services.calling import client_of, manager_of
from apps.seeds.services.managing import (
    drop_segment,
    forget,
    look_up,
    reopen,
    reopen_failed,
    show_segments,
)

__all__ = [
    "client_of",
    "drop_segment",
    "forget",
    "look_up",
    "manager_of",
    "reopen",
    "reopen_failed",
    "show_segments",
]
