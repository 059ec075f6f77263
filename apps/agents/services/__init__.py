"""Every write of this app: agents as they report, allocations as the center makes them."""

from apps.agents.services.allocating import (
    allocate,
    downloader_settings,
    join_run,
    release,
    release_ended,
)
from apps.agents.services.history import prune_samples
from apps.agents.services.registration import register_agent, store_heartbeats
from apps.agents.services.switching import exit_agent, switch_agent
from apps.agents.services.telling import told_allocation, told_releases

__all__ = [
    "allocate",
    "downloader_settings",
    "exit_agent",
    "join_run",
    "prune_samples",
    "register_agent",
    "release",
    "release_ended",
    "store_heartbeats",
    "switch_agent",
    "told_allocation",
    "told_releases",
]
