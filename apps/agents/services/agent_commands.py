"""What the chosen agents are told of an allocation, and of its end."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from apps.agents.engine.owners import known_number
from apps.agents.models import Agent, Allocation
from apps.agents.services.allocation import downloader_settings
from yardkit.protocol import AllocateDownloader, Policy, ReleaseDownloader
from yardkit.sealing import seal


def allocation_commands(
    allocation: Allocation, agents: Iterable[Agent], now: float
) -> list[tuple[str, AllocateDownloader]]:
    """(agent id, its command) for each of ``agents``; ``now`` in Unix seconds.

    Cookies are sealed for the agent, so that they stand in no queue: those of an agent of an older
    version, which has told no key, go as they are.
    """
    settings = downloader_settings(allocation)
    bare = msgspec.structs.replace(settings, cookies={})
    cookies = msgspec.json.encode(settings.cookies) if settings.cookies else b""
    run = known_number(allocation.owner)
    told = []
    for agent in agents:
        key = bytes.fromhex(agent.seal_key) if cookies else b""
        command = AllocateDownloader(
            run=run,
            reply_to=allocation.reply_to,
            settings=bare if key else settings,
            policy=Policy(allocation.policy),
            # When it is told, not when it was decided: an agent that comes back is told anew.
            allocated_at=now,
            sealed_cookies=seal(key, cookies, purpose=f"run {run}") if key else b"",
        )
        told.append((agent.agent_id, command))
    return told


def release_commands(allocations: Iterable[Allocation]) -> list[tuple[str, ReleaseDownloader]]:
    """(agent id, its command) for each agent of each of them."""
    return [
        (agent.agent_id, ReleaseDownloader(run=known_number(allocation.owner)))
        for allocation in allocations
        for agent in allocation.agents.all()
    ]
