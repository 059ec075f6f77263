"""What is SQLite's own: the file, processes at once, one that is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path

import pytest

from apps.joblogs.stores.base import BEGINNING, LogStoreUnavailable, Ref
from apps.joblogs.stores.sqlite import SqliteLogStore
from apps.joblogs.stores.sqlite.database import NAME
from tests.joblogs.stores.lines import DAY, LONG_AGO, batch, found, line, seqs


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogStoreUnavailable, match="cannot write to"):
        SqliteLogStore(tmp_path / "file" / "logs").setup()


def test_another_database_is_left_alone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / NAME)
    other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(LogStoreUnavailable, match="not of log lines"):
        SqliteLogStore(tmp_path).setup()


def test_what_is_no_database_is_said_so(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"x" * 5000)
    with pytest.raises(LogStoreUnavailable, match="no SQLite database"):
        SqliteLogStore(tmp_path).setup()


def test_a_file_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    store = SqliteLogStore(tmp_path)
    store.setup()
    store.close()
    connection = sqlite3.connect(tmp_path / NAME)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(LogStoreUnavailable, match="newer version"):
        SqliteLogStore(tmp_path).setup()


@pytest.mark.covers("S1.18")
def test_a_killed_writer_leaves_whole_transactions(tmp_path: Path) -> None:
    store = SqliteLogStore(tmp_path)
    store.setup()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        # A forked process opens connections of its own.
        for n in range(1, 100_000):
            store.write([batch([line(2 * n - 1, "pair"), line(2 * n, "pair")])], now=LONG_AGO)
            os.write(write, b".")
    for _ in range(20):
        os.read(read, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    kept = len(store.page("run:7", after=BEGINNING, limit=100_000))
    state = store.stream_state("run:7")
    assert state is not None
    assert kept >= 40
    assert kept % 2 == 0
    assert (state.lines, state.missing) == (kept, {})
    assert len(found(store, "pair")) == min(kept, 1000)
    assert store.write([batch(line(n) for n in range(1, kept + 3))], now=LONG_AGO) == 2
    store.close()
    os.close(read)
    os.close(write)


@pytest.mark.slow("15 s")
def test_a_run_of_years_is_read_like_any_other(tmp_path: Path) -> None:
    """Its days are more than SQLite takes in one question."""
    store = SqliteLogStore(tmp_path)
    store.setup()
    lines = [line(n, at=LONG_AGO + n * DAY) for n in range(1, 700)]
    store.write([batch(lines)], now=LONG_AGO)
    assert seqs(store.page("run:7", limit=3)) == [697, 698, 699]
    assert seqs(store.page("run:7", after=Ref(1, 350), limit=3)) == [351, 352, 353]
    before = store.page("run:7", before=Ref(1, 350), limit=3, contains="line")
    assert seqs(before) == [347, 348, 349]
    store.close()


def test_lines_are_stored_many_with_each_statement(tmp_path: Path) -> None:
    store = SqliteLogStore(tmp_path)
    store.setup()
    statements: list[str] = []
    store._database.writing(lambda connection: connection.set_trace_callback(statements.append))
    texts = {n: f"page {n} 商品 {n}" for n in range(1, 252)}
    store.write([batch([line(n, text) for n, text in texts.items()])], now=LONG_AGO)
    # Two of a hundred rows each, and one for each row that is left.
    assert sum(one.startswith("INSERT INTO lines_") for one in statements) == 2 + 51
    kept = store.page("run:7", after=BEGINNING, limit=1000)
    assert {one.ref.seq: one.text for one in kept} == texts
    for n in (1, 100, 101, 200, 201, 251):
        assert found(store, f'"page {n} 商品 {n}"') == [n]
    store.close()
