"""Runs of ``yardscrapy crawl``, plain and on the platform, and what they have reported."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.daemon_processes import ROOT
from tests.yardscrapy.scrapy_platform import PROJECTS, ScrapyPlatform
from yardkit import topology
from yardkit.broker import Broker, Outgoing, connect
from yardkit.items.batches import read_batch
from yardkit.protocol import (
    FileChunk,
    ItemBatch,
    Lifecycle,
    LifecycleAnswer,
    RunAction,
    RunCounters,
    decode,
    encode,
)

ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}


def version_of(python: str) -> tuple[int, int]:
    """Return the version of Scrapy of an interpreter."""
    code = "import scrapy; print(*scrapy.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    major, minor = done.stdout.split()
    return int(major), int(minor)


def crawl(
    python: str, *words: str, cwd: Path = PROJECTS / "market", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run ``yardscrapy crawl`` to its end, outside the platform unless told otherwise."""
    return subprocess.run(
        [python, "-m", "yardscrapy", "crawl", *words],
        cwd=cwd,
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def key(item: dict[str, Any]) -> str:
    """Return what sorts items."""
    return json.dumps(item, sort_keys=True)


@dataclass
class Reported:
    """What one run has published."""

    items: list[dict[str, Any]] = field(default_factory=list)
    counters: list[RunCounters] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def last(self) -> RunCounters:
        return max(self.counters, key=lambda message: message.seq)


class Watcher:
    """Reads the queues of items and statistics, which no daemon reads in these tests."""

    def __init__(self, platform: ScrapyPlatform) -> None:
        self.broker: Broker = connect(platform.broker_url, name="watcher")
        self.broker.declare(*topology.SHARED)
        self.broker.declare_exchange(topology.LIFECYCLE, "topic")
        self._queues = [
            self.broker.subscribe(queue.name, prefetch=1000)
            for queue in (topology.ITEMS, topology.STATISTICS, topology.LIFECYCLE_ANSWERS)
        ]
        self.runs: dict[int, Reported] = {}
        self.answers: list[LifecycleAnswer] = []

    def of(self, run: int) -> Reported:
        """Return what a run has reported by now."""
        self.read()
        return self.runs.setdefault(run, Reported())

    def read(self) -> None:
        """Take what is in the queues."""
        for queue in self._queues:
            while deliveries := self._take(queue):
                for delivery in deliveries:
                    self._note(decode(delivery.body))
                queue.ack(deliveries)

    def _take(self, queue: Any) -> Any:
        until = time.monotonic() + 0.3
        while not (deliveries := queue.take(1000)) and time.monotonic() < until:
            time.sleep(0.02)
        return deliveries

    def _note(self, message: Any) -> None:
        if isinstance(message, ItemBatch | FileChunk):
            kind, _, run = message.producer.partition(":")
            reported = self.runs.setdefault(int(run), Reported())
            if isinstance(message, ItemBatch) and kind == "requests":
                reported.requests += [item.data for item in read_batch(message)]
            elif isinstance(message, ItemBatch):
                reported.items += [item.data for item in read_batch(message)]
            else:
                before = reported.files.get(message.name, b"") if message.part else b""
                reported.files[message.name] = before + message.data
        elif isinstance(message, RunCounters):
            self.runs.setdefault(message.run, Reported()).counters.append(message)
        elif isinstance(message, LifecycleAnswer):
            self.answers.append(message)

    def command(self, run: int, topic: str, action: RunAction, number: int) -> LifecycleAnswer:
        """Send a command; wait for its answer."""
        message = Lifecycle(run=run, boot="b1", action=action, command=number, reason="a test")
        self.broker.publish(
            [Outgoing(encode(message), exchange=topology.LIFECYCLE, key=topic, mandatory=False)]
        ).result(5)
        until = time.monotonic() + 15
        while time.monotonic() < until:
            self.read()
            for answer in self.answers:
                if answer.run == run and answer.command == number:
                    return answer
        raise AssertionError(f"no answer to {action}")

    def close(self) -> None:
        self.broker.close(1.0)


@dataclass
class PlatformRun:
    """A run on the platform that goes on."""

    run: int
    process: subprocess.Popen[str]
    folder: Path

    def end(self, seconds: float = 100.0) -> tuple[int, dict[str, Any], str]:
        """Wait for its end; return exit status, ``exit.json`` and log."""
        status = self.process.wait(seconds)
        log = (self.folder / "log.txt").read_text()
        assert (self.folder / "exit.json").exists(), log
        return status, json.loads((self.folder / "exit.json").read_text()), log


@contextlib.contextmanager
def started(
    platform: ScrapyPlatform,
    folder: Path,
    python: str,
    *words: str,
    project: Path = PROJECTS / "market",
    **environment: str,
) -> Iterator[PlatformRun]:
    """Start ``yardscrapy crawl`` as the platform does; end it by force at the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {"CRAWLYARD_KEEPS_REQUESTS": "1", **environment}
    of_run = platform.run(CRAWLYARD_RUN_DIR=str(folder), **environment)
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            [python, "-m", "yardscrapy", "crawl", *words],
            cwd=project,
            env={**ENVIRONMENT, **of_run},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield PlatformRun(int(of_run["CRAWLYARD_RUN"]), process, folder)
        finally:
            process.kill()
            process.wait()
