"""What a backup of an installation at work brings back is whole, and of one moment."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from apps.requeststore.stores.sqlite import SqliteNode
from apps.seeds.stores.rocks import RocksStore
from tests.crawlyard.backup.writer_process import DATABASE
from tests.e2e.daemon_processes import ROOT, Daemons
from tests.requeststore.stores import calls as requests
from tests.seeds.stores import calls as seeds

pytestmark = pytest.mark.slow("whole installations, backed up and restored")


@pytest.fixture
def old(tmp_path: Path) -> Daemons:
    """An installation with something in every folder, too."""
    made = Daemons(tmp_path / "old")
    made.migrate()
    data = tmp_path / "old" / "data"
    for name, text in {
        "runs/7/items.jsonl": "item",
        "runs/7/run.log": "line",
        "records/news.jsonl": "record",
        "objects/datasets/p1/x.parquet": "items",
        "objects/.incomplete/x": "half of them",
        "spiders/mine.py": "class Spider: ...",
        "routing/inbounds/p1/state": "42",
        "failures/news.jsonl": "failed",
        "agents/here.id": "agent-1",
        "agents/agent-1/downloaders/run-7.alloc": "cookie of a run",
    }.items():
        file = data / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (data / "runs" / "7" / "link").symlink_to("/etc/passwd")
    return made


@pytest.fixture
def new(tmp_path: Path, old: Daemons) -> Daemons:
    """An empty one that has the keys."""
    made = Daemons(tmp_path / "new")
    folder = tmp_path / "new" / "data"
    folder.mkdir(mode=0o700)
    # The first command of the old one makes them.
    old.manage("check")
    for key in ("secret_key", "secretbox_key"):
        shutil.copy(tmp_path / "old" / "data" / key, folder / key)
    return made


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crawlyard.backup.writer_process", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        yield
        assert process.poll() is None, "it could not write while the backup was made"
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def numbers(folder: Path) -> tuple[int, int, int, int]:
    """How many there are in both tables, the requests and, by twenties, the seeds."""
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        tables = [
            database.execute(f"SELECT count(*) FROM runtime_{table}").fetchone()[0]  # noqa: S608
            for table in ("processedmessage", "outboxmessage")
        ]
    node = SqliteNode(folder / "requests")
    store = RocksStore(folder / "seeds", sync=False)
    try:
        stored = node.count(requests.SHARD).total
        books = seeds.books(store)
        # The books are those of the seeds that are really there.
        assert store.pending(seeds.FRONTIER) == books.pending
    finally:
        node.close()
        store.close()
    assert books.added % 20 == 0
    return tables[0], tables[1], stored, books.added // 20


def test_a_backup_of_an_installation_at_work_is_of_one_moment(
    old: Daemons, new: Daemons, tmp_path: Path
) -> None:
    with writing(tmp_path / "old" / "data"):
        done = old.manage("backup", str(tmp_path / "backups" / "one"))
    assert "needs the key of SECRET_KEY" in done.stdout
    after = numbers(tmp_path / "old" / "data")
    new.manage("restore", str(tmp_path / "backups" / "one"))
    processed, outbox, stored, added = numbers(tmp_path / "new" / "data")
    assert processed == outbox
    assert processed >= stored >= added >= processed - 1
    assert 5 <= processed < after[0], "the writer has gone on after that moment"


def test_files_come_back_but_what_agents_were_told_does_not(
    old: Daemons, new: Daemons, tmp_path: Path
) -> None:
    old.manage("backup", str(tmp_path / "one"))
    new.manage("restore", str(tmp_path / "one"))
    data = tmp_path / "new" / "data"
    assert (data / "runs/7/items.jsonl").read_text() == "item"
    assert (data / "routing/inbounds/p1/state").read_text() == "42"
    assert (data / "failures/news.jsonl").read_text() == "failed"
    assert (data / "spiders/mine.py").exists()
    assert (data / "objects/datasets/p1/x.parquet").read_text() == "items"
    assert not (data / "objects/.incomplete").exists()
    # Links were a snapshot of it, and are gone.
    assert [path.name for path in (tmp_path / "old/data/objects").glob(".backup-*")] == []
    assert (data / "agents/here.id").read_text() == "agent-1"
    # It holds cookies in clear, and the centers tell it again.
    assert not (data / "agents/agent-1").exists()
    assert not (data / "runs/7/link").is_symlink()
    new.manage("doctor")


def test_nothing_of_the_keys_is_in_it(old: Daemons, tmp_path: Path) -> None:
    old.manage("backup", str(tmp_path / "one"))
    data = tmp_path / "old" / "data"
    keys = [(data / name).read_bytes().strip() for name in ("secret_key", "secretbox_key")]
    files = [file for file in (tmp_path / "one").rglob("*") if file.is_file()]
    assert len(files) > 5
    for file in files:
        body = file.read_bytes()
        assert not any(key in body for key in keys), file
        if file.is_relative_to(tmp_path / "one" / "database"):
            assert file.stat().st_mode & 0o077 == 0
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o700


def test_a_part_can_be_left_out_and_is_then_left_alone(
    old: Daemons, new: Daemons, tmp_path: Path
) -> None:
    done = old.manage("backup", "--without", "nonsense", str(tmp_path / "one"), status=2)
    assert "nonsense" in done.stderr
    old.manage("backup", "--without", "runs", str(tmp_path / "one"))
    new.manage("restore", str(tmp_path / "one"))
    assert not (tmp_path / "new" / "data" / "runs").exists()
    assert (tmp_path / "new" / "data" / "spiders" / "mine.py").exists()
