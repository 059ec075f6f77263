"""Assigns requests to agents by the run's policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random

from apps.agents.center.runs import RunEntry
from yardkit import topology
from yardkit.broker import Outgoing
from yardkit.protocol import DownloadCommand, RequestItem, Skipped, batches, encode

# Requests in one command; small enough that two agents share a burst evenly.
ITEMS_PER_COMMAND = 50
# Requests of a batch that go to one agent, where there are enough: each message costs.
ITEMS_PER_AGENT = 4
# The run's own timeout has passed by then.
ANSWER_TTL_SECONDS = 60.0
AGENT_GONE = "the agent that a chained request belongs to is gone"

# (agent, run, reply_to) -> its requests
Groups = dict[tuple[str, int, str], list[RequestItem]]


def assign(
    groups: Groups, entry: RunEntry, reply_to: str, items: Sequence[RequestItem], random: Random
) -> dict[str, list[RequestItem]]:
    """Add each request to the group of its agent; return the unassignable ones by reason.

    ``entry.alive`` must be fresh, see ``RunTable.alive``. Policy chained: a request with an agent
    id goes to that agent only; if it is dead or not an agent of the run, the request is skipped and
    the run retries it. All others go to any living agent of the run, which for the policies fixed
    and chained are the n allocated ones.
    """
    alive = entry.alive
    if not alive:
        return {entry.why_nobody(): list(items)}
    run = entry.run
    if entry.chained:
        return _assign_chained(groups, entry, reply_to, items, random)
    count = min(len(alive), -(-len(items) // ITEMS_PER_AGENT))
    for number, agent in enumerate(random.sample(alive, count)):
        groups.setdefault((agent, run, reply_to), []).extend(items[number::count])
    return {}


def _assign_chained(
    groups: Groups, entry: RunEntry, reply_to: str, items: Sequence[RequestItem], random: Random
) -> dict[str, list[RequestItem]]:
    gone: list[RequestItem] = []
    for item in items:
        agent = item.agent or random.choice(entry.alive)
        if agent in entry.alive_set:
            groups.setdefault((agent, entry.run, reply_to), []).append(item)
        else:
            gone.append(item)
    return {AGENT_GONE: gone} if gone else {}


def commands(groups: Groups, now: float, report_to: str = "") -> Iterator[Outgoing]:
    """Yield the groups as messages to the agents; ``now`` in Unix seconds."""
    for (agent, run, reply_to), items in groups.items():
        for batch in batches(items, ITEMS_PER_COMMAND):
            command = DownloadCommand(
                run=run, reply_to=reply_to, items=batch, dispatched_at=now, report_to=report_to
            )
            yield Outgoing(
                body=encode(command),
                key=topology.agent_commands(agent).name,
                ttl_seconds=topology.DOWNLOAD_EXPIRES_SECONDS,
                persistent=False,
            )


def skipped(run: int, reply_to: str, reason: str, items: Iterable[RequestItem]) -> Outgoing:
    """Return the message to a run that these requests were not dispatched."""
    message = Skipped(run=run, reason=reason, items=[(item.id, item.attempt) for item in items])
    return to_run(reply_to, encode(message))


def to_run(reply_to: str, body: bytes) -> Outgoing:
    """Return a message to a run about its requests; it expires with the run's timeout."""
    return Outgoing(body=body, key=reply_to, persistent=False, ttl_seconds=ANSWER_TTL_SECONDS)
