"""What only the SQLite adapter can suffer: dead processes, locks, full disks, changed clocks."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.measurements import Measured
from tests.yardkit.broker_fixtures import (
    PATIENCE_SECONDS,
    Brokers,
    bodies,
    put,
    ready,
    take,
    wait_until,
)
from yardkit.broker import BrokerClosed, Outgoing, QueueSpec, connect
from yardkit.broker.sqlite_clock import SharedClock, current_boot


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "broker.sqlite3"


@pytest.fixture
def brokers(file: Path) -> Iterator[Brokers]:
    made = Brokers(f"sqlite://{file}", "test")
    yield made
    made.close()


@pytest.fixture
def queue(brokers: Brokers) -> str:
    name = brokers.name()
    brokers.connect().declare(QueueSpec(name))
    return name


# --- other processes ----------------------------------------------------------------------------


@pytest.mark.fault
def test_what_a_killed_process_leaves_is_cleared(brokers: Brokers, queue: str, file: Path) -> None:
    broker = brokers.connect()
    put(broker, queue, b"x")
    folder = Path(f"{file}.d")
    before = set(folder.iterdir())
    worker = brokers.worker("hold", brokers.url, queue, 10)
    assert worker.line() == "1"
    assert broker.depth(queue).consumers == 1
    files = set(folder.iterdir()) - before
    assert files
    began = time.monotonic()
    worker.kill()
    wait_until(lambda: ready(broker, queue) == 1, "its message is given back")
    assert time.monotonic() - began < 10
    assert broker.depth(queue).consumers == 0
    wait_until(lambda: not files & set(folder.iterdir()), "its lock and socket are gone")


def test_a_consumer_in_another_process_is_woken_at_once(brokers: Brokers, queue: str) -> None:
    broker = brokers.connect()
    brokers.worker("echo", brokers.url, queue)
    broker.request(Outgoing(b"warm up", queue), PATIENCE_SECONDS)
    times: list[float] = []
    for _ in range(50):
        began = time.monotonic()
        broker.request(Outgoing(b"x" * 8192, queue), PATIENCE_SECONDS)
        times.append(time.monotonic() - began)
    # Four looks a second would take a quarter of a second for each of the two ways.
    assert sorted(times)[25] < 0.1


def test_without_sockets_the_poll_is_the_net(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("long" * 20)))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / ("long" * 20)).mkdir()
    file = tmp_path / ("d" * 100) / "broker.db"
    brokers = Brokers(f"sqlite://{file}", "test")
    one, two = brokers.connect(), brokers.connect()
    one.declare(QueueSpec("q"))
    subscription = two.subscribe("q")
    assert not list(Path(f"{file}.d").glob("*.sock"))
    put(one, "q", b"x")
    assert bodies(take(subscription, 1)) == [b"x"]
    brokers.close()


def test_long_paths_fall_back_to_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr("tempfile.tempdir", short)
        left_behind = Path(short, "crawlyard-left-behind.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
            dead.bind(str(left_behind))
        file = tmp_path / ("d" * 100) / "broker.db"
        one, two = (connect(f"sqlite://{file}", name="test") for _ in range(2))
        assert not left_behind.exists()
        assert len(list(Path(short).iterdir())) == 2
        one.declare(QueueSpec("q"))
        subscription = two.subscribe("q")
        put(one, "q", b"x")
        assert bodies(take(subscription, 1)) == [b"x"]
        one.close()
        two.close()
        assert list(Path(short).iterdir()) == []


def test_a_locked_file_is_waited_for(brokers: Brokers, queue: str, file: Path) -> None:
    broker = brokers.connect()
    subscription = broker.subscribe(queue)
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    confirm = broker.publish([Outgoing(b"x", queue)])
    with pytest.raises(TimeoutError):
        confirm.result(0.3)
    assert broker.connected
    connection.execute("COMMIT")
    confirm.result(PATIENCE_SECONDS)
    connection.close()
    assert bodies(take(subscription, 1)) == [b"x"]


@pytest.mark.fault
def test_a_stopped_process_keeps_what_it_holds(brokers: Brokers, queue: str) -> None:
    broker = brokers.connect()
    put(broker, queue, b"x")
    worker = brokers.worker("hold", brokers.url, queue, 10)
    assert worker.line() == "1"
    worker.process.send_signal(19)  # SIGSTOP
    subscription = broker.subscribe(queue)
    assert subscription.take(1, 2.5) == []  # at least two sweeps
    assert broker.depth(queue).unacked == 1


@pytest.mark.fault
def test_a_child_after_a_fork_has_to_open_its_own(brokers: Brokers, queue: str) -> None:
    broker = brokers.connect()
    subscription = broker.subscribe(queue)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"wrong"
        try:
            broker.depth(queue)
        except BrokerClosed:
            if isinstance(broker.publish([Outgoing(b"", queue)]).exception(0), BrokerClosed):
                broker.close()
                said = b"closed" if not broker.connected else b"connected"
        finally:
            os.write(writing, said)
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"closed"
    os.close(reading)
    os.close(writing)
    put(broker, queue, b"x")
    assert bodies(take(subscription, 1)) == [b"x"]


FULL = """
import resource, signal, sys
sys.path.insert(0, sys.argv[2])
from yardkit.broker import BrokerUnavailable, Outgoing, QueueSpec, connect
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
broker = connect(sys.argv[1], name="full")
broker.declare(QueueSpec("q"))
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, most))
confirmed = 0
for _ in range(1000):
    error = broker.publish([Outgoing(bytes(100_000), "q")]).exception(60)
    if error is not None:
        break
    confirmed += 1
print(isinstance(error, BrokerUnavailable))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
broker.publish([Outgoing(b"after", "q")]).result(60)
print(confirmed, broker.depth("q").ready)
broker.close()
"""


@pytest.mark.fault
def test_a_full_disk_fails_publishes_and_is_survived(file: Path, measured: Measured) -> None:
    platform = Path(__file__).parents[2] / "platform"
    process = subprocess.run(
        [sys.executable, "-c", FULL, f"sqlite://{file}", str(platform)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert process.stdout.startswith("True\n"), process.stderr
    confirmed, there = map(int, process.stdout.split()[1:])
    # And the one after it.
    more = there - (confirmed + 1)
    measured(of=confirmed + 1, lost=max(0, -more), twice=max(0, more))
    assert 0 < confirmed < 100
    assert more == 0
    assert "Traceback" not in process.stderr


@pytest.mark.slow("3 s")
def test_idle_costs_next_to_nothing(brokers: Brokers, queue: str) -> None:
    worker = brokers.worker("idle", brokers.url, queue, 3)
    share = float(worker.line())
    assert share < 0.03, f"{share:.1%} of a processor while idle"


# --- time ---------------------------------------------------------------------------------------


@pytest.mark.fault
def test_the_clock_of_the_wall_changes_no_time_to_live(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SharedClock(current_boot(), 1000.0)
    before = clock.now()
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert 0 <= clock.now() - before < 60


def test_a_reboot_sets_the_clock_anew(brokers: Brokers, file: Path) -> None:
    broker = brokers.connect()
    broker.declare(QueueSpec("q"))
    put(broker, "q", b"short", ttl_seconds=3600)
    put(broker, "q", b"long", ttl_seconds=3600 * 48)
    broker.close()
    connection = sqlite3.connect(file)
    # As if written a day ago, before a reboot.
    connection.execute("UPDATE state SET boot = 'earlier', epoch = 0")
    connection.execute("UPDATE ready SET expires_at = expires_at - 86400")
    connection.commit()
    connection.close()
    assert bodies(take(brokers.connect().subscribe("q"), 1)) == [b"long"]


# --- many at once -------------------------------------------------------------------------------


def test_many_brokers_write_one_file(brokers: Brokers, queue: str) -> None:
    each, texts = 300, list(range(5))
    subscription = brokers.connect().subscribe(queue, prefetch=200)

    def publish_all(number: int) -> None:
        broker = brokers.connect()
        for sequence in range(each):
            broker.publish([Outgoing(f"{number} {sequence}".encode(), queue)])
        put(broker, queue, f"{number} {each}".encode())

    threads = [threading.Thread(target=publish_all, args=(number,)) for number in texts]
    for thread in threads:
        thread.start()
    seen: dict[int, list[int]] = {number: [] for number in texts}
    while sum(map(len, seen.values())) < len(texts) * (each + 1):
        got = subscription.take(200, PATIENCE_SECONDS)
        assert got
        for delivery in got:
            number, sequence = map(int, delivery.body.split())
            seen[number].append(sequence)
        subscription.ack(got)
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert all(sequences == list(range(each + 1)) for sequences in seen.values())


@pytest.mark.slow("1 s")
def test_one_line_is_logged_when_the_file_is_lost_and_found(
    brokers: Brokers, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker = brokers.connect()
    file.rename(file.with_name("moved"))
    wait_until(lambda: "is open again" in caplog.text, "it is opened again")
    broker.close()
    lost = [record for record in caplog.records if "lost" in record.message]
    assert len(lost) == 1
    assert lost[0].levelno == logging.WARNING
