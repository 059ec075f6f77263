"""Simulated runs: requests to the center at an even rate, by a process of its own.

``python -m tools.benches.batches`` reads one ``Plan`` as a line of JSON from its input. For
each further line, "warm" or "go", it sends one batch for every run or the load itself, and answers
with the number of requests sent and by how many seconds it fell behind at worst. It ends with its
input.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
from collections.abc import Iterator

import msgspec

from yardkit import topology
from yardkit.broker import Broker, Outgoing, QueueSpec, connect
from yardkit.protocol import DownloadBatch, DownloadRequest, RequestItem, encode, encode_request

TICK_SECONDS = 0.005
# Where the answers of the center would go; nobody reads them.
ANSWERS = QueueSpec("bench.answers", durable=False, expires_seconds=120)
CONFIRM_SECONDS = 10.0


class PlannedRun(msgspec.Struct):
    """A run, its token, and the agents it names itself (chained) or none."""

    run: int
    token: str
    agents: list[str]


class Plan(msgspec.Struct):
    """Whom to send for, to which hosts, how fast and how long; a batch has ``items`` requests."""

    url: str
    runs: list[PlannedRun]
    hosts: list[str]
    rate: int
    seconds: float
    items: int


class Load:
    """The runs take turns."""

    def __init__(self, plan: Plan, broker: Broker) -> None:
        self._plan = plan
        self._broker = broker
        self._ids = itertools.count(1)
        self._requests = [
            (
                host,
                encode_request(DownloadRequest(url=f"https://{host}/a/page/of/some/length.html")),
            )
            for host in plan.hosts
        ]
        broker.declare(*topology.SHARED, ANSWERS)

    def warm(self) -> tuple[int, float]:
        """One batch for each run."""
        messages = [self._batch(run) for run in self._plan.runs]
        self._broker.publish(messages).result(CONFIRM_SECONDS)
        return len(messages) * self._plan.items, 0.0

    def go(self) -> tuple[int, float]:
        """The load; the number of requests and the worst delay in seconds."""
        plan = self._plan
        runs: Iterator[PlannedRun] = itertools.cycle(plan.runs)
        per_second = plan.rate / plan.items
        total = int(plan.seconds * per_second)
        began, sent, behind = time.monotonic(), 0, 0.0
        future = None
        while sent < total:
            due = min(total, int((time.monotonic() - began) * per_second) + 1)
            behind = max(behind, (due - sent - 1) / per_second)
            for _ in range(due - sent):
                future = self._broker.publish([self._batch(next(runs))])
            sent = due
            time.sleep(TICK_SECONDS)
        if future is not None:
            future.result(CONFIRM_SECONDS)
        return sent * plan.items, behind

    def _batch(self, run: PlannedRun) -> Outgoing:
        # Chained: what is sent together are the links of one page, and they stay with its agent.
        agent = random.choice(run.agents) if run.agents else ""  # noqa: S311 - no secret
        hosts = random.choices(self._requests, k=self._plan.items)  # noqa: S311
        items = [RequestItem(next(self._ids), 1, host, agent, request) for host, request in hosts]
        batch = DownloadBatch(
            run=run.run, token=run.token, reply_to=ANSWERS.name, items=items, sent_at=time.time()
        )
        return Outgoing(
            body=encode(batch),
            key=topology.CENTER_REQUESTS.name,
            ttl_seconds=topology.DOWNLOAD_EXPIRES_SECONDS,
            persistent=False,
        )


def main() -> None:
    """Do what the lines of the input say."""
    plan = msgspec.json.decode(sys.stdin.readline(), type=Plan)
    broker = connect(plan.url, name="crawlyard bench runs")
    load = Load(plan, broker)
    for line in sys.stdin:
        sent, behind = load.warm() if line.strip() == "warm" else load.go()
        sys.stdout.write(json.dumps({"sent": sent, "behind_seconds": round(behind, 3)}) + "\n")
        sys.stdout.flush()
    broker.delete(ANSWERS.name)
    broker.close(CONFIRM_SECONDS)


if __name__ == "__main__":
    main()
