"""The log store is away: lines wait in the queue, it is said once, and nothing is lost."""

from __future__ import annotations

import importlib.util
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.conf import LazySettings

from apps.joblogs import daemon as module
from apps.joblogs.daemon import BATCH, LogDaemon
from apps.joblogs.services import close_log_store, log_store
from apps.joblogs.stores.base import LogStore, LogStoreUnavailable
from apps.jobs.models import Run
from apps.runtime.services import subscribe_dead_letters
from tests.joblogs import elastic_server
from tests.joblogs.elastic_double import ElasticDouble
from tests.joblogs.factories import batch, whole_log
from tests.jobs.factories import make_run
from yardkit import topology
from yardkit.broker import Broker, Outgoing
from yardkit.clock import SystemClock
from yardkit.daemon import CannotStart
from yardkit.protocol import encode

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault]
COUNT = 3 * BATCH


@pytest.fixture
def run() -> Run:
    return make_run()


@pytest.fixture
def daemon(broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogDaemon]:
    """With three batches of messages before it."""
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(module, "LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    broker.declare(topology.LOGS)
    messages = [encode(batch(run.stream, [seq])) for seq in range(1, COUNT + 1)]
    broker.publish([Outgoing(body=one, key=topology.LOGS.name) for one in messages]).result(9)
    daemon = LogDaemon(broker=broker, clock=SystemClock())
    daemon.setup()
    yield daemon
    daemon.teardown()


def until(daemon: LogDaemon, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        daemon.step()


def settled(broker: Broker) -> bool:
    depth = broker.depth(topology.LOGS.name)
    return depth.ready == 0 and depth.unacked == 0


def waiting(broker: Broker) -> bool:
    depth = broker.depth(topology.LOGS.name)
    return (depth.ready, depth.unacked) == (COUNT, 0)


def seqs(run: Run) -> list[int]:
    return [line.ref.seq for line in whole_log(run.stream)]


def said(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return sum(words in record.getMessage() for record in caplog.records)


@pytest.fixture
def blocked(tmp_path: Path, settings: LazySettings) -> Path:
    """A file where the folder of the log store should be."""
    close_log_store()
    path = tmp_path / "blocked"
    path.touch()
    settings.LOGS_URL = f"sqlite://{path / 'logs'}"
    return path


@pytest.mark.covers("S1.18")
def test_lines_wait_in_the_queue_and_are_all_there_when_it_is_back(
    daemon: LogDaemon, broker: Broker, run: Run, blocked: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(8):
        assert daemon.step()
    until(daemon, lambda: waiting(broker))
    assert "cannot write to" in daemon.detail()["away"]["log store"]
    blocked.unlink()
    until(daemon, lambda: settled(broker))
    assert seqs(run) == list(range(1, COUNT + 1))
    assert daemon.detail() == {"away": {}}
    assert said(caplog, "log store fails and is retried") == 1
    assert said(caplog, "log store works again") == 1
    assert subscribe_dead_letters(broker).take(1, timeout=0.1) == []


def test_who_is_to_run_once_does_not_wait(broker: Broker, run: Run, blocked: Path) -> None:
    broker.declare(topology.LOGS)
    daemon = LogDaemon(broker=broker, clock=SystemClock(), once=True)
    daemon.setup()
    message = Outgoing(body=encode(batch(run.stream, [1])), key=topology.LOGS.name)
    broker.publish([message]).result(9)
    with pytest.raises(LogStoreUnavailable):
        until(daemon, lambda: False)
    daemon.teardown()
    assert broker.depth(topology.LOGS.name).ready == 1


def test_a_store_that_cannot_be_opened_at_all_makes_no_dead_letters(
    broker: Broker, settings: LazySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here for want of a library."""
    close_log_store()
    settings.LOGS_URL = "http://user:geheim@127.0.0.1:9"
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    daemon = LogDaemon(broker=broker, clock=SystemClock())
    with pytest.raises(CannotStart, match=r"LOGS_URL: .*\.\[elasticsearch\]") as refused:
        daemon.setup()
    assert "geheim" not in str(refused.value)


@elastic_server.WANTED
def test_a_store_that_is_read_but_not_written_is_said_to_be_away_once(
    daemon: LogDaemon,
    broker: Broker,
    run: Run,
    settings: LazySettings,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As an Elasticsearch whose disk is full."""
    monkeypatch.setattr("apps.joblogs.stores.elastic.connection.LONGEST_PAUSE_SECONDS", 0.01)
    double = ElasticDouble()
    close_log_store()
    settings.LOGS_URL = double.url
    reason = "disk usage exceeded flood-stage watermark"
    double.faults.refuse("/_bulk", 429, "cluster_block_exception", reason, times=30)
    caplog.set_level(logging.INFO)
    until(daemon, lambda: settled(broker))
    assert seqs(run) == list(range(1, COUNT + 1))
    assert said(caplog, reason) == 1
    assert said(caplog, "log store works again") == 1
    close_log_store()
    double.stop()


def test_who_waited_for_a_store_that_cannot_be_opened_does_not_try_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the last of many readers would wait as often as there are others before it."""
    close_log_store()
    tries, asked = [], threading.Barrier(4)

    def hanging() -> LogStore:
        tries.append(1)
        time.sleep(1)
        raise LogStoreUnavailable("away")

    monkeypatch.setattr("apps.joblogs.services.store._opened", hanging)

    def ask(_number: int) -> str:
        asked.wait()
        with pytest.raises(LogStoreUnavailable) as failure:
            log_store()
        return str(failure.value)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == ["away"] * 4
    assert len(tries) == 1
    with pytest.raises(LogStoreUnavailable):
        log_store()
    assert len(tries) == 2
