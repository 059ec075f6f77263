"""What is SQLite's own: many processes and threads on one folder, forks, a full disk."""

from __future__ import annotations

import multiprocessing
import os
import re
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest

from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.stores.base import Finish, NewRequest, QueueEntry, Shard
from apps.requeststore.stores.sqlite import SqliteNode, statements
from apps.requeststore.stores.sqlite.files import Files
from apps.requeststore.stores.sqlite.table import SqliteShard
from tests.plugins.measurements import Measured
from tests.requeststore.stores.calls import (
    CUTOFF,
    DEADLINE,
    NOW,
    SHARD,
    codes,
    finish,
    flags,
    new,
    one,
    store,
    take,
)

PROCESSES = 4
EACH = 400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "requests"


@pytest.fixture
def node(folder: Path) -> Iterator[SqliteNode]:
    made = SqliteNode(folder)
    yield made
    made.close()


Answers: TypeAlias = "multiprocessing.Queue[list[int]]"


def _produce_and_consume(folder: Path, number: int, answers: Answers) -> None:
    """A process that stores its own requests and takes whatever it can get."""
    node = SqliteNode(folder)
    everything = [QueueEntry(one, "news", NOW + one) for one in range(PROCESSES * EACH)]
    mine = range(number * EACH, (number + 1) * EACH)
    taken: list[int] = []
    for start in range(0, EACH, 50):
        store(node, *mine[start : start + 50])
        some = everything[:: number + 1]
        takes = node.take(
            SHARD, some, owner=f"w{number}", now=NOW, deadline=DEADLINE, cutoff=CUTOFF
        )
        ends = [Finish(each.request.id, 1, 1) for each in takes if each.request]
        node.finish(SHARD, ends, owner=f"w{number}", now=NOW)
        taken += [end.id for end in ends]
    answers.put(taken)
    node.close()


@pytest.mark.slow("3 s")
def test_processes_that_write_at_once_share_no_request(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: Answers = context.Queue()
    processes = [
        context.Process(target=_produce_and_consume, args=(folder, number, answers))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    taken: Counter[int] = Counter()
    for _ in processes:
        taken.update(answers.get(timeout=60))
    for process in processes:
        process.join(30)
    node = SqliteNode(folder)
    assert set(taken.values()) == {1}
    assert flags(node) == {1: len(taken), **({0: left} if (left := 1600 - len(taken)) else {})}
    node.close()


def test_threads_that_take_at_once_share_no_request(node: SqliteNode) -> None:
    store(node, *range(500))

    def work(number: int) -> list[int]:
        barrier.wait()
        takes = take(node, *range(500), owner=f"w{number}")
        return [each.request.id for each in takes if each.request]

    barrier = threading.Barrier(6)
    with ThreadPoolExecutor(6) as pool:
        taken = [one for some in pool.map(work, range(6)) for one in some]
    assert sorted(taken) == list(range(500))


def test_a_forked_process_opens_files_of_its_own(node: SqliteNode) -> None:
    store(node, 1, 2, 3)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of pytest may run here.
        status = 1
        try:
            take(node, 1)
            node.close()
            os.write(writer, b"x")
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reader, 1) == b"x"
    os.close(reader)
    os.close(writer)
    assert codes(take(node, 1, 2)) == ["busy", "taken"]
    assert finish(node, 2) == ["done"]
    with closing(sqlite3.connect(node._files.path(SHARD.database))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_somebody_who_writes_for_long_is_waited_for_and_then_named(folder: Path) -> None:
    node = SqliteNode(folder, busy_seconds=0.1)
    store(node, 1)
    other = sqlite3.connect(node._files.path(SHARD.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RequestStoreUnavailable, match="others have been writing"):
        take(node, 1)
    # Who only looks is not kept waiting.
    assert one(node, 1).flag == 0
    other.execute("ROLLBACK")
    other.close()
    assert codes(take(node, 1)) == ["taken"]
    node.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    made = tmp_path / "small"
    made.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(made)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("a file system of 4 MB cannot be mounted: this needs root")
    yield made
    subprocess.run(["umount", str(made)], check=True)


@pytest.mark.fault
def test_a_full_disk_is_said_and_nothing_is_half_written(
    small_disk: Path, measured: Measured
) -> None:
    node = SqliteNode(small_disk / "requests")
    store(node, *range(100))
    stored = 100

    def fill() -> None:
        nonlocal stored
        while stored < 600:
            large = [new(stored + number, data=b"x" * 100_000) for number in range(5)]
            node.insert(SHARD, large, by="web", now=NOW)
            stored += 5

    with pytest.raises(RequestStoreUnavailable, match="the disk is full"):
        fill()
    measured(of=stored, lost=node.find(SHARD, list(range(stored))).count(None))
    assert flags(node) == {0: stored}
    assert node.find(SHARD, [stored]) == [None]
    # Room again: it goes on without a new start.
    (small_disk / "requests").joinpath("other").write_bytes(b"")
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    assert codes(take(node, 1)) == ["taken"]
    assert store(node, stored) == [True]
    node.close()


@pytest.mark.slow("1 s")
def test_few_files_stay_open_whatever_there_are(folder: Path) -> None:
    node = SqliteNode(folder)
    shards = [Shard(f"crawlyard_p{number}_news", "requests_000") for number in range(70)]
    for _ in range(2):
        for shard in shards:
            store(node, 1, shard=shard)
    idle = node._files._idle
    assert sum(map(len, idle.values())) == 64
    # Those that were used last.
    assert set(idle) == {shard.database for shard in shards[-64:]}
    large = [new(number, data=b"x" * 1_000_000) for number in range(5)]
    node.insert(shards[-1], large, by="web", now=NOW)
    assert shards[-1].database not in idle or not idle[shards[-1].database]
    node.close()
    assert not idle


def test_a_file_of_another_kind_is_refused(folder: Path) -> None:
    folder.mkdir()
    path = folder / f"{SHARD.database}.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE other (a)")
    connection.close()
    node = SqliteNode(folder)
    with pytest.raises(RequestStoreUnavailable, match="not of requests"):
        store(node, 1)
    path.write_bytes(b"no database at all, but long enough to be taken for one" * 100)
    with pytest.raises(RequestStoreUnavailable, match="no SQLite database"):
        store(node, 1)
    path.unlink()
    assert store(node, 1) == [True]
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    node.close()
    with pytest.raises(RequestStoreUnavailable, match="newer version"):
        store(SqliteNode(folder), 2)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestStoreUnavailable, match="cannot write to"):
        SqliteNode(tmp_path / "file" / "requests")


def test_a_closed_node_says_so(node: SqliteNode) -> None:
    store(node, 1)
    node.close()
    with pytest.raises(RequestStoreUnavailable, match="closed"):
        store(node, 2)


def test_a_commit_can_wait_for_the_disk(folder: Path) -> None:
    node = SqliteNode(folder, sync=True)
    assert store(node, 1) == [True]
    with node._files.connection(SHARD.database) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    node.close()


def test_a_large_request_is_not_written_anew_by_a_change(folder: Path) -> None:
    node = SqliteNode(folder)
    node.ensure(SHARD, delete_after_seconds=60)
    node.insert(SHARD, [NewRequest(1, "news", NOW, b"x" * 5_000_000)], by="web", now=NOW)
    before = node.health().storage_bytes or 0
    for turn in range(10):
        take(node, 1, ts=NOW, now=NOW + turn, deadline=NOW + turn + 1)
    assert (node.health().storage_bytes or 0) - before < 1_000_000
    node.close()


# Statements that look at one row a request, and the two that may look through a whole shard.
_WHOLE = {"SIZE"}


def _texts() -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, value in vars(statements).items()
        if name[0] != "_" and isinstance(value, str) and "{" in value and name not in _WHOLE
    ]


@pytest.mark.parametrize("analyzed", [False, True], ids=["new", "analyzed"])
def test_no_statement_looks_through_a_shard(folder: Path, analyzed: bool) -> None:
    node = SqliteNode(folder)
    store(node, *range(2000))
    take(node, *range(0, 2000, 3))
    finish(node, *range(0, 2000, 9))
    files = Files(folder, sync=False)
    with files.connection(SHARD.database) as connection:
        if analyzed:
            connection.execute("ANALYZE")
        table = SqliteShard(connection, SHARD)
        looked = 0
        for name, text in _texts():
            plain = text.replace("?", "1")
            values = dict.fromkeys(re.findall(r":([a-z_]+)", plain), 1)
            plan = table.execute(f"EXPLAIN QUERY PLAN {plain}", values).fetchall()
            for *_, step in plan:
                words = step.split()
                if words[0] == "SCAN":
                    # Staged rows only; and the few rows of a sample, by the end of its index.
                    staged = words[1].removeprefix("temp.") in {"g", "s", "seen", "given"}
                    assert staged or name in {"SAMPLE", "SHARDS"}, (name, step)
                looked += 1
        assert looked > 40
    files.close()
    node.close()
