"""What only the SQLite adapter can suffer: wrong, shared, growing and vanishing files."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.yardkit.broker_fixtures import WORKER, Brokers, bodies, put, ready, take, wait_until
from yardkit.broker import BadBrokerURL, BrokerUnavailable, QueueSpec, connect


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


def count(file: Path, table: str) -> int:
    connection = sqlite3.connect(file)
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608
    finally:
        connection.close()


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite://", "no absolute path"),
        ("sqlite:///", "no absolute path"),
        ("sqlite:relative.db", "no absolute path"),
        ("sqlite://relative.db", "host"),
        ("sqlite:///:memory:", "memory"),
        ("sqlite:///tmp/x?mode=ro", "options"),
        ("sqlite:///tmp/folder/", "folder"),
        ("sqlite:///tmp", "folder"),
        ("sqlite:///tmp/x%00y", "no absolute path"),
    ],
)
def test_bad_urls_say_what_is_wrong(url: str, said: str) -> None:
    with pytest.raises(BadBrokerURL, match=said) as caught:
        connect(url, name="test")
    assert "sqlite:///path/to/file" in str(caught.value)


def test_three_slashes_or_four_name_the_same_file(file: Path) -> None:
    for slashes in ("sqlite://", "sqlite:///"):
        broker = connect(f"{slashes}{file}", name="test")
        assert broker.url == f"{slashes}{file}"
        broker.declare(QueueSpec("one"))
        broker.close()
    assert count(file, "queue") == 2  # "one" and the dead-letter queue


def test_folders_are_made_and_left_clean(tmp_path: Path) -> None:
    file = tmp_path / "new" / "folder" / "with space.db"
    broker = connect(f"sqlite://{file.as_posix().replace(' ', '%20')}", name="test")
    broker.close()
    assert sorted(path.name for path in file.parent.iterdir()) == [
        "with space.db",
        "with space.db.d",
    ]
    assert [path.name for path in (file.parent / "with space.db.d").iterdir()] == ["schema.lock"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(BrokerUnavailable, match="cannot write the broker file") as caught:
        connect(f"sqlite://{in_the_way}/broker.db", name="test")
    assert "Not a directory" in str(caught.value)
    with pytest.raises(BrokerUnavailable, match="cannot write the broker file"):
        connect("sqlite:///proc/broker.db", name="test")


def test_something_else_in_the_file(file: Path, tmp_path: Path) -> None:
    file.write_bytes(b"this is no database, but it is long enough to look at" * 100)
    with pytest.raises(BadBrokerURL, match="no SQLite database"):
        connect(f"sqlite://{file}", name="test")
    other = tmp_path / "django.sqlite3"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE auth_user (id INTEGER)")
    connection.close()
    before = other.read_bytes()
    with pytest.raises(BadBrokerURL, match="not a broker's"):
        connect(f"sqlite://{other}", name="test")
    assert other.read_bytes() == before


def test_a_file_of_a_newer_version(brokers: Brokers, file: Path) -> None:
    brokers.connect().close()
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(BrokerUnavailable, match="newer version"):
        brokers.connect()


@pytest.mark.slow("2 s")
def test_processes_that_start_at_once_make_one_file(brokers: Brokers, file: Path) -> None:
    command = [sys.executable, str(WORKER), "declare", brokers.url, "shared"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    for process in processes:
        assert process.communicate(timeout=60)[0] == "ready\n"
    broker = brokers.connect()
    assert ready(broker, "shared") == 8
    assert count(file, "session") == 1


def test_messages_survive_the_end_of_every_process(brokers: Brokers, queue: str) -> None:
    first = brokers.connect()
    put(first, queue, b"one", b"two", priority=1, headers={"n": 1})
    first.close()
    got = take(brokers.connect().subscribe(queue), 2)
    assert bodies(got) == [b"one", b"two"]
    assert got[0].headers == {"n": 1}


@pytest.mark.slow("6 s")
def test_the_file_is_used_again_and_shrinks(brokers: Brokers, queue: str, file: Path) -> None:
    broker = brokers.connect()
    subscription = broker.subscribe(queue, prefetch=500)
    for _ in range(20):
        put(broker, queue, *[bytes(8192)] * 200)
        subscription.ack(take(subscription, 200))
    # 32 MB have passed through; the write-ahead log is limited, the pages are used again.
    assert file.stat().st_size < 8_000_000
    subscription.close()
    for _ in range(15):
        put(broker, queue, *[bytes(8192)] * 200)
    largest = broker.purge(queue) * 8192
    wait_until(lambda: count_pages(file) * 4096 < largest / 2, "free pages are given back")


def count_pages(file: Path) -> int:
    connection = sqlite3.connect(file)
    try:
        return int(connection.execute("PRAGMA page_count").fetchone()[0])
    finally:
        connection.close()


def test_expired_messages_leave_the_file(brokers: Brokers, queue: str, file: Path) -> None:
    broker = brokers.connect()
    put(broker, queue, b"first and for ever")
    put(broker, queue, *[b"x"] * 3000, ttl_seconds=0.1)
    wait_until(lambda: count(file, "message") == 1, "those behind the first one, too")


def test_a_deleted_queue_leaves_the_file(brokers: Brokers, queue: str, file: Path) -> None:
    broker = brokers.connect()
    subscription = broker.subscribe(queue, prefetch=10)
    for _ in range(3):
        put(broker, queue, *[b"x"] * 3000)
    take(subscription, 10)
    brokers.connect().delete(queue)
    subscription.close()
    wait_until(lambda: count(file, "message") == 0, "its messages are removed")
    wait_until(lambda: count(file, "garbage") == 0, "the list of such queues is empty")


@pytest.mark.slow("1 s")
def test_a_file_that_is_replaced_is_opened_again(
    brokers: Brokers, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker = brokers.connect()
    broker.declare(QueueSpec("kept"))
    subscription = broker.subscribe("kept")
    for path in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
        path.unlink()
    wait_until(lambda: "is open again" in caplog.text, "the file is made again")
    other = brokers.connect()
    put(other, "kept", b"x")
    assert bodies(take(subscription, 1)) == [b"x"]
    assert "deleted or replaced" in caplog.text
    assert "Traceback" not in caplog.text
