"""Commands to the chosen agents about an allocation and its release."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from apps.agents.engine.owners import known_number
from apps.agents.models import Agent, Allocation
from apps.agents.services.allocation import downloader_settings
from yardkit.protocol import AllocateDownloader, Policy, ReleaseDownloader
from yardkit.seals import seal


def allocation_commands(
    allocation: Allocation, agents: Iterable[Agent], now: float
) -> list[tuple[str, AllocateDownloader]]:
    """Return (agent id, command) for each of ``agents``; ``now`` in Unix seconds.

    Cookies are sealed for the agent, so that no queue contains them in plain text; an agent of an
    older version, without a key, gets them as they are.
    """
    settings = downloader_settings(allocation)
    bare = msgspec.structs.replace(settings, cookies={})
    cookies = msgspec.json.encode(settings.cookies) if settings.cookies else b""
    run = known_number(allocation.owner)
    commands = []
    for agent in agents:
        key = bytes.fromhex(agent.seal_key) if cookies else b""
        command = AllocateDownloader(
            run=run,
            reply_to=allocation.reply_to,
            settings=bare if key else settings,
            policy=Policy(allocation.policy),
            # Time of the command, not of the decision: an agent that comes back gets
            # the command again.
            allocated_at=now,
            sealed_cookies=seal(key, cookies, purpose=f"run {run}") if key else b"",
        )
        commands.append((agent.agent_id, command))
    return commands


def release_commands(allocations: Iterable[Allocation]) -> list[tuple[str, ReleaseDownloader]]:
    """Return (agent id, command) for each agent of each allocation."""
    return [
        (agent.agent_id, ReleaseDownloader(run=known_number(allocation.owner)))
        for allocation in allocations
        for agent in allocation.agents.all()
    ]
