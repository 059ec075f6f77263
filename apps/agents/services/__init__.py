"""Writes of this app: agents as they report, allocations as the center makes them."""

from apps.agents.services.agent_commands import allocation_commands, release_commands
from apps.agents.services.allocation import (
    allocate,
    downloader_settings,
    join_run,
    release,
    release_ended,
)
from apps.agents.services.history import prune_samples
from apps.agents.services.modes import exit_agent, switch_agent
from apps.agents.services.registration import register_agent, store_heartbeats

__all__ = [
    "allocate",
    "allocation_commands",
    "downloader_settings",
    "exit_agent",
    "join_run",
    "prune_samples",
    "register_agent",
    "release",
    "release_commands",
    "release_ended",
    "store_heartbeats",
    "switch_agent",
]
