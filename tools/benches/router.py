"""bench router: a whole router beside a Celery worker whose task does nothing.

Both find their messages waiting in a durable queue. What counts is CPU of the processes that are
compared: the router, and the worker's parent with its one child. Both are looked at from a tenth
of their work on, so that neither's start is measured.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import msgspec
import psutil
import redis

from crawlyard.supervisor import Supervisor, Unit
from crawlyard.units import manage
from tools.benches import router_clerk as clerk
from tools.benches import router_peer as peers
from tools.benches.measuring import (
    END_SECONDS,
    PYTHON_PATH,
    BenchFailed,
    conditions,
    environment,
    helper,
    line_of,
    module,
    usage,
)
from tools.benches.router_stores import Stores, lend_stores
from tools.benches.rules import UNROUTED, make_items, make_rules
from yardkit.broker import Broker, Outgoing, QueueSpec, connect
from yardkit.stop import Stop

ITEMS = 20_000
OUTBOUNDS = 100
LOOK_SECONDS = 0.05
WAIT_SECONDS = 300.0
# Confirmed in batches of so many.
PUBLISHED: Final = 2000
# What logstash puts around the log of a spider, and a converter takes away.
LOGSTASH: Final = {
    "@timestamp": "2020-06-30T08:15:30.123Z",
    "@version": "1",
    "host": "spider-17",
    "path": "/data/logs/business.log",
    "tags": ["business"],
}

Watched = Callable[[], int]
# Of the messages, which are known by it when they come again.
_numbers = itertools.count(1)


def run(*, items: int = ITEMS, scales: Sequence[int], peer: bool) -> dict[str, Any]:
    """Route ``items`` items times each of ``scales``; the JSON object.

    Raises:
        BenchFailed: a store is missing, or not every item was routed, or the books do not balance.
    """
    before = conditions()
    with lend_stores() as stores:
        with _Ours(stores) as ours:
            steps = [ours.measure(items * scale) for scale in scales]
        theirs = _Peer(stores).measure(items) if peer else None
    first, last = steps[0], steps[-1]
    ratio = None
    if theirs:
        ratio = round(first["items_per_cpu_second"] / theirs["items_per_cpu_second"], 2)
    return {
        "bench": "router",
        "items": items,
        "outbounds": OUTBOUNDS,
        "selectors_per_outbound": 5,
        "unrouted": f"1 of {UNROUTED}",
        "versions": {"celery": version("celery")},
        # The embedded stores of the bench's own settings are not what was measured.
        **before,
        "ours": first,
        "peer": theirs,
        # Items in a second of CPU, of the router and of the worker with its child.
        "ratio": ratio,
        "limit": None,
        "limit_ratio": None,
        "growth": {
            "steps": steps,
            "cpu_ratio": round(last["cpu_us_per_item"] / first["cpu_us_per_item"], 2),
            "rss_ratio": round(last["peak_rss_mb"] / first["peak_rss_mb"], 2),
        },
    }


@dataclass(slots=True)
class _Window:
    """What was used between the first look and the last one."""

    items: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss_mb: float = 0.0

    def figures(self) -> dict[str, Any]:
        if not self.cpu_seconds:
            raise BenchFailed("too few items to tell their cost")
        return {
            "items_per_second": round(self.items / self.seconds),
            "cores_used": round(self.cpu_seconds / self.seconds, 2),
            "cpu_us_per_item": round(1e6 * self.cpu_seconds / self.items, 1),
            "items_per_cpu_second": round(self.items / self.cpu_seconds),
            "peak_rss_mb": round(self.peak_rss_mb),
        }


def _watch(done: Watched, items: int, pid: int, step: Callable[[], None]) -> Iterator[_Window]:
    """Twice the same window: when it opens, at a tenth of the items, and when all are done."""
    window = _Window()
    at = cpu = count = 0.0
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        step()
        now, finished = time.monotonic(), done()
        seconds, rss = _used(pid)
        window.peak_rss_mb = max(window.peak_rss_mb, rss)
        if not at and finished * 10 >= items:
            at, cpu, count = now, seconds, finished
            yield window
        if finished >= items:
            window.items = items - round(count)
            window.seconds, window.cpu_seconds = now - at, seconds - cpu
            yield window
            return
        if now > deadline:
            raise BenchFailed(f"{finished} of {items} items after {WAIT_SECONDS:.0f} s")


def _used(pid: int) -> tuple[float, float]:
    """CPU seconds and resident memory of a process and its children."""
    try:
        pids = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        raise BenchFailed("a measured process has ended") from None
    used = [found for one in pids if (found := usage(one)) is not None]
    return sum(one.cpu_seconds for one in used), sum(one.rss_mb for one in used)


class _Ours:
    """A router for every step; the ledger goes on from one to the next."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._yard = clerk.Yard(
            queue=f"{stores.prefix}.items",
            # Of the yard's spiders: what begins with the platform's own prefix is closed to rules.
            keys=f"{stores.prefix}_lists:",
            outbounds=make_rules(OUTBOUNDS),
        )
        self._keys = [clerk.key_of(self._yard, name) for name, _ in self._yard.outbounds]
        self._received = 0
        self._batches = 0

    def __enter__(self) -> _Ours:
        self._broker = connect(self._stores.broker_url, name="crawlyard bench")
        self._broker.declare(QueueSpec(self._yard.queue))
        self._redis = redis.Redis.from_url(self._stores.redis_url)
        self._helper = helper(module("tools.benches.router_clerk"), self._stores.environment)
        self._clerk = self._helper.__enter__()
        self._ask(msgspec.json.encode(self._yard).decode())
        return self

    def __exit__(self, *error: object) -> None:
        self._helper.__exit__(None, None, None)
        self._broker.delete(self._yard.queue)
        self._broker.close(END_SECONDS)
        self._redis.close()

    def measure(self, items: int) -> dict[str, Any]:
        """Load the queue, then let a router work it off."""
        bodies = (json.dumps(item, ensure_ascii=False).encode() for item in _items(items))
        _publish(self._broker, self._yard.queue, bodies)
        self._redis.delete(*self._keys)
        lines: list[str] = []
        unit = Unit(
            "router",
            manage("run_router", "--project", clerk.PROJECT),
            PYTHON_PATH | self._stores.environment,
        )
        supervisor = Supervisor([unit], lambda name, line: lines.append(line))
        with Stop() as stop:
            supervisor.start()
            try:
                figures = self._measure(supervisor, stop, items)
            except BenchFailed as failure:
                raise BenchFailed("\n".join([str(failure), *lines[-20:]])) from failure
            finally:
                supervisor.stop()
        if left := self._broker.depth(self._yard.queue).ready:
            raise BenchFailed(f"{left} messages were not acknowledged")
        return figures

    def _measure(self, supervisor: Supervisor, stop: Stop, items: int) -> dict[str, Any]:
        def step() -> None:
            supervisor.step(LOOK_SECONDS)
            if stop.requested or supervisor.restarts():
                raise BenchFailed("the router has ended")

        routed = items - -(-items // UNROUTED)
        pid = supervisor.pids()["router"]
        windows = _watch(lambda: self._routed(), routed, pid, step)
        next(windows)
        backends = self._ask("look")["backends"]
        before = [_cpu(backend) for backend in backends]
        window = next(windows)
        after = [_cpu(backend) for backend in backends]
        batches = self._settle(step, items, routed)
        # Those that no rule takes have been worked on, too.
        window.items = round(window.items * items / routed)
        database = sum(after) - sum(before)
        return {
            "items": items,
            **window.figures(),
            "database_us_per_item": round(1e6 * database / window.items, 1),
            "items_per_batch": round(items / batches),
        }

    def _routed(self) -> int:
        with self._redis.pipeline(transaction=False) as pipeline:
            for key in self._keys:
                pipeline.llen(key)
            return sum(pipeline.execute())

    def _settle(self, step: Callable[[], None], items: int, routed: int) -> int:
        """Until the last batch is written down; the books must balance, with each item in them.

        Returns in how many batches the items came.
        """
        self._received += items
        deadline = time.monotonic() + WAIT_SECONDS
        books = self._ask("look")
        while books["dispatched"] + books["rejected"] < self._received:
            step()
            if time.monotonic() > deadline:
                break
            books = self._ask("look")
        books = self._ask("audit")
        if (
            not books["holds"]
            or books["received"] != self._received
            or books["dispatched"] + books["rejected"] != self._received
            or self._routed() != routed
        ):
            raise BenchFailed(f"the books do not balance: {books}")
        before, self._batches = self._batches, books["batches"]
        return self._batches - before

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._clerk.stdin is not None  # noqa: S101 - helper() asks for a pipe
        self._clerk.stdin.write(line + "\n")
        self._clerk.stdin.flush()
        answer: dict[str, Any] = json.loads(line_of(self._clerk))
        return answer


def _items(count: int) -> Iterator[dict[str, Any]]:
    return (item | LOGSTASH for item in make_items(OUTBOUNDS, count))


def _publish(broker: Broker, queue: str, bodies: Iterator[bytes]) -> None:
    batch: list[Outgoing] = []
    for body in bodies:
        batch.append(Outgoing(body, key=queue, message_id=f"{queue} {next(_numbers)}"))
        if len(batch) == PUBLISHED:
            broker.publish(batch).result(WAIT_SECONDS)
            batch = []
    broker.publish(batch).result(WAIT_SECONDS)


def _cpu(pid: int) -> float:
    """Of a process of the database, where it runs on this machine."""
    found = usage(pid)
    return found.cpu_seconds if found else 0.0


class _Peer:
    """A worker that is given as many messages, with the same items."""

    def __init__(self, stores: Stores) -> None:
        self._environment: Mapping[str, str] = environment() | stores.environment
        self._queue = f"{stores.prefix}.tasks"
        self._url = stores.broker_url

    def measure(self, items: int) -> dict[str, Any]:
        """Load its queue, then let it work."""
        subprocess.run(
            module("tools.benches.router_peer", self._queue),
            env=self._environment,
            input="".join(json.dumps(item) + "\n" for item in _items(items)),
            text=True,
            timeout=WAIT_SECONDS,
            check=True,
        )
        broker = connect(self._url, name="crawlyard bench peer")
        try:
            with self._worker() as process:
                windows = _watch(
                    lambda: items - broker.depth(self._queue).ready,
                    items,
                    process.pid,
                    lambda: time.sleep(LOOK_SECONDS),
                )
                next(windows)
                return {"items": items, **next(windows).figures()}
        finally:
            broker.delete(self._queue)
            broker.close(END_SECONDS)

    @contextmanager
    def _worker(self) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(
            peers.worker(self._queue),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=os.path.sep,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
