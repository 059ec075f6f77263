"""Tasks in files: whole or not there, though a worker looks all the time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu import Connection, Queue
from kombu.exceptions import ChannelError

import crawlyard.task_files

MESSAGES = 300


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    folders = {each: str(tmp_path / each) for each in ("queue", "control")}
    for folder in folders.values():
        Path(folder).mkdir()
    options = {
        "data_folder_in": folders["queue"],
        "data_folder_out": folders["queue"],
        "control_folder": folders["control"],
    }
    with Connection(
        f"{crawlyard.task_files.NAME}://localhost", transport_options=options
    ) as connection:
        yield connection


@pytest.mark.slow("2 s")
def test_a_reader_beside_a_writer_finds_whole_messages(
    connection: Connection, tmp_path: Path
) -> None:
    body = "a" * 200_000

    def write() -> None:
        with connection.clone() as mine, mine.SimpleQueue("tasks") as queue:
            for number in range(MESSAGES):
                queue.put({"number": number, "body": body})

    writer = threading.Thread(target=write)
    writer.start()
    found = []
    with connection.SimpleQueue("tasks") as queue:
        for _ in range(MESSAGES):
            message = queue.get(timeout=30)
            found.append(message.payload["number"])
            assert message.payload["body"] == body
            message.ack()
    writer.join()
    assert sorted(found) == list(range(MESSAGES))
    assert list((tmp_path / "queue").iterdir()) == []


def test_tasks_come_in_the_order_in_which_they_were_put(connection: Connection) -> None:
    with connection.SimpleQueue("ordered") as queue:
        for number in range(MESSAGES):
            queue.put(number)
        found = [queue.get(timeout=30).payload for _ in range(MESSAGES)]
    assert found == list(range(MESSAGES))


def test_what_cannot_be_written_is_said_and_leaves_nothing(
    connection: Connection, tmp_path: Path
) -> None:
    producer = connection.Producer()
    queue = Queue("tasks", routing_key="tasks")
    producer.publish({}, routing_key="tasks", declare=[queue])
    [written] = (tmp_path / "queue").iterdir()
    written.unlink()
    (tmp_path / "queue").rmdir()
    with pytest.raises(ChannelError, match="cannot write"):
        producer.publish({}, routing_key="tasks")


def test_a_worker_that_ends_takes_nothing_more(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crawlyard.task_files, "_ending", threading.Event())
    # A name of its own: kombu remembers for the whole process what it has bound.
    with connection.SimpleQueue("left") as queue:
        queue.put({"number": 1})
        queue.put({"number": 2})
        assert queue.get(timeout=30).payload == {"number": 1}
        crawlyard.task_files.hand_out_no_more()
        with pytest.raises(queue.Empty):
            queue.get(timeout=0.5)
    [left] = (tmp_path / "queue").iterdir()
    assert left.name.endswith(".left.msg")
