"""Simulated agents: one heartbeat each 5 s, evenly spread, by a process of its own.

``python -m tools.benches.beats AGENTS`` reads the broker's URL from its input, says "beating",
and beats until its input closes. Its last line says how many heartbeats were confirmed, how many
were not, and by how much it fell behind at worst.
"""

from __future__ import annotations

import json
import random
import select
import sys
import time
from concurrent.futures import Future
from functools import partial

from yardkit import topology
from yardkit.broker import Outgoing, connect
from yardkit.protocol import Heartbeat, encode

PREFIX = "bench-"
TICK_SECONDS = 0.01
CONFIRM_SECONDS = 5.0
_GIGABYTE = 2**30


def agent_id(number: int) -> str:
    """The id of a simulated agent."""
    return f"{PREFIX}{number:05}"


def heartbeat(number: int, downloaders: int = 3) -> Outgoing:
    """What a real agent sends, with figures that change as a real one's do."""
    message = Heartbeat(
        agent=agent_id(number),
        name=agent_id(number),
        boot="bench",
        total_memory_bytes=4 * _GIGABYTE,
        free_memory_bytes=random.randrange(4 * _GIGABYTE),  # noqa: S311 - a figure, no secret
        cpu_percent=round(100 * random.random(), 1),  # noqa: S311
        downloaders=downloaders,
        qps=round(100 * random.random(), 1),  # noqa: S311
        labels={"zone": "bench"},
        version="0",
    )
    return Outgoing(
        body=encode(message),
        key="",
        exchange=topology.HEARTBEATS,
        ttl_seconds=topology.AGENT_ALIVE_SECONDS,
        persistent=False,
        mandatory=False,
    )


class Beats:
    """Agent n beats n/agents of an interval after the first one, and then every interval."""

    def __init__(self, url: str, agents: int) -> None:
        self.confirmed = 0
        self.failed = 0
        self.behind_seconds = 0.0
        self._agents = agents
        self._broker = connect(url, name="crawlyard bench agents")
        self._broker.declare_exchange(topology.HEARTBEATS, "fanout")
        self._began = time.monotonic()
        self._sent = 0

    def tick(self) -> None:
        """Send what is due by now."""
        now = time.monotonic()
        per_second = self._agents / topology.HEARTBEAT_SECONDS
        due = int((now - self._began) * per_second)
        if due == self._sent:
            return
        self.behind_seconds = max(self.behind_seconds, (due - self._sent) / per_second)
        messages = [heartbeat(number % self._agents) for number in range(self._sent, due)]
        self._sent = due
        self._broker.publish(messages).add_done_callback(partial(self._settled, len(messages)))

    def _settled(self, count: int, done: Future[None]) -> None:
        if done.exception() is None:
            self.confirmed += count
        else:
            self.failed += count

    def end(self) -> dict[str, float]:
        """Let go of the broker; the last line."""
        self._broker.close(CONFIRM_SECONDS)
        return {
            "confirmed": self.confirmed,
            "failed": self.failed,
            "behind_seconds": round(self.behind_seconds, 3),
        }


def main() -> None:
    """Beat until the input closes."""
    beats = Beats(sys.stdin.readline().strip(), int(sys.argv[1]))
    sys.stdout.write("beating\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], TICK_SECONDS)[0]:
        beats.tick()
    sys.stdout.write(json.dumps(beats.end()) + "\n")


if __name__ == "__main__":
    main()
