"""The queues on the home page, from a real broker and from one that hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.dashboard import backlog as backlog_module
from apps.dashboard.backlog import Backlog, BacklogReader
from apps.runtime.services import close_shared_broker, shared_broker
from yardkit import topology
from yardkit.broker import BrokerUnavailable, Outgoing

ROOT = Path(__file__).resolve().parents[2]
HANGS = """
import threading
import django
django.setup()
from apps.dashboard import backlog
backlog.shared_broker = threading.Event().wait
print(backlog.BacklogReader().read(timeout=0.01).problem)
"""


@pytest.fixture
def own_broker(settings: Any, sqlite_broker_url: str) -> Iterator[None]:
    close_shared_broker()
    settings.BROKER_URL = sqlite_broker_url
    yield
    close_shared_broker()


def lines(backlog: Backlog) -> dict[str, tuple[int, int]]:
    return {line.name: (line.ready, line.consumers) for line in backlog.lines}


@pytest.mark.usefixtures("own_broker")
def test_depth_and_readers_of_every_shared_queue() -> None:
    broker = shared_broker()
    broker.publish([Outgoing(body=b"x", key=topology.RUNNERS.name)] * 3).result(10)
    reader = broker.subscribe(topology.STATISTICS.name)
    found = BacklogReader().read(timeout=10)
    reader.close()
    assert set(lines(found)) >= {queue.name for queue in topology.SHARED}
    assert lines(found)[topology.RUNNERS.name] == (3, 0)
    assert lines(found)[topology.STATISTICS.name] == (0, 1)
    assert [line.name for line in found.abandoned] == [topology.RUNNERS.name]


def test_a_broker_that_hangs_holds_a_page_for_less_than_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, calls = threading.Event(), []

    def hang() -> Any:
        calls.append(1)
        release.wait(30)
        raise BrokerUnavailable("it hung")

    monkeypatch.setattr(backlog_module, "shared_broker", hang)
    reader = BacklogReader()
    started = time.monotonic()
    first = reader.read()
    waited = time.monotonic() - started
    second = reader.read(timeout=0.01)
    release.set()
    assert str(first.problem) == str(second.problem) == "The broker has not responded yet."
    assert backlog_module.PAGE_SECONDS <= waited < 5
    assert calls == [1]
    later = reader.read(timeout=10)
    assert (str(later.problem), later.detail) == ("The broker does not respond.", "it hung")


@pytest.mark.slow("7 s")
def test_a_broker_that_hangs_for_ever_holds_up_no_exit(tmp_path: Path) -> None:
    environment = os.environ | {
        "CRAWLYARD_TEST_DATA": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "crawlyard.settings.testing",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
    }
    done = subprocess.run(
        [sys.executable, "-c", HANGS],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "The broker has not responded yet.\n"


def test_many_pages_ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def away() -> Any:
        calls.append(1)
        raise BrokerUnavailable("gone")

    monkeypatch.setattr(backlog_module, "shared_broker", away)
    reader = BacklogReader()
    for _ in range(20):
        reader.read(timeout=10)
    assert calls == [1]
