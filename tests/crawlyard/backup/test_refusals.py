"""What is damaged, foreign or in the way is refused, and nothing changes."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.utils import timezone

from apps.projects.models import Project
from apps.runtime.checks import START_TAG, restore_mark
from apps.runtime.models import Daemon
from apps.runtime.states import DaemonState
from apps.seeds.engine.errors import SeedStoreUnavailable
from apps.seeds.stores.rocks import RocksStore
from crawlyard.backup import manifest
from crawlyard.backup.creation import make_backup
from crawlyard.backup.errors import BackupError, Damaged, RestoreRefused
from crawlyard.backup.parts import BackupPart, PartKind
from crawlyard.backup.restore import restore
from tests.e2e.daemon_processes import ROOT, Daemons
from tests.plugins.migrated_databases import fill_data_folder
from yardkit.secretbox import generate_key

pytestmark = pytest.mark.django_db

DATABASE_NAME = "crawlyard.sqlite3"
DATABASE = f"database/{DATABASE_NAME}"


@pytest.fixture
def data(tmp_path: Path, settings: Any) -> Path:
    """The data folder of an installation."""
    settings.DATA_DIR = tmp_path / "data"
    fill_data_folder(settings.DATA_DIR)
    (settings.DATA_DIR / "spiders").mkdir()
    (settings.DATA_DIR / "spiders" / "mine.py").write_text("old")
    return tmp_path / "data"


@pytest.fixture
def parts(data: Path) -> list[BackupPart]:
    return [
        BackupPart("database", PartKind.SQLITE, "DATABASE_URL", str(data / "crawlyard.sqlite3")),
        BackupPart("spiders", PartKind.FOLDER, "SPIDERS_DIR", str(data / "spiders")),
    ]


@pytest.fixture
def backup(parts: list[BackupPart], data: Path, tmp_path: Path) -> Path:
    make_backup(tmp_path / "one", parts, [], said)
    (data / "spiders" / "mine.py").write_text("new")
    return tmp_path / "one"


def said(_line: str) -> None:
    """To nobody."""


def state_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder; those that SQLite makes while a database is open come and go."""
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in sorted(folder.rglob("*"))
        if each.is_file() and not each.name.endswith(("-wal", "-shm"))
    }


def changed_manifest(root: Path, **changes: object) -> None:
    """As somebody who knows how it is made would change it."""
    known = json.loads((root / manifest.NAME).read_bytes()) | changes
    body = json.dumps(known).encode()
    (root / manifest.NAME).write_bytes(body)
    (root / manifest.SUM_NAME).write_text(f"{hashlib.sha256(body).hexdigest()}  manifest.json\n")


def flip(file: Path, place: int) -> None:
    body = bytearray(file.read_bytes())
    body[place] ^= 1
    file.write_bytes(body)


def cut(file: Path) -> None:
    os.truncate(file, 1000)


def lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"x")


DAMAGES: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "flipped": (lambda root: flip(root / DATABASE, 5000), (DATABASE, "damaged", "bytes 0 to")),
    "cut": (lambda root: cut(root / DATABASE), (DATABASE, "is cut: 1000 bytes")),
    "missing": (lambda root: (root / DATABASE).unlink(), (DATABASE, "No such file")),
    "longer": (lambda root: lengthen(root / DATABASE), (DATABASE, "too long")),
    "manifest": (lambda root: flip(root / manifest.NAME, 30), ("manifest.json", "checksum")),
    "headless": (lambda root: (root / manifest.NAME).unlink(), ("no whole backup",)),
    "format": (lambda root: changed_manifest(root, format=2), ("format 2", "reads 1")),
    "escaping": (
        lambda root: changed_manifest(
            root,
            files=[{"path": "../../x", "part": "database", "bytes": 0, "sha256": "", "blocks": []}],
        ),
        ("../../x", "no file of a backup"),
    ),
}


@pytest.mark.slow("3 s")
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_backup_is_refused_and_says_what_and_where(
    parts: list[BackupPart], backup: Path, data: Path, damage: str
) -> None:
    break_it, told = DAMAGES[damage]
    break_it(backup)
    before = state_of(data)
    with pytest.raises(Damaged) as caught:
        restore(backup, parts, said, force=True)
    for words in told:
        assert words in str(caught.value)
    assert state_of(data) == before


def test_where_in_a_large_file_the_damage_is(tmp_path: Path) -> None:
    file = tmp_path / "part" / "large"
    file.parent.mkdir()
    file.write_bytes(bytes(2 * manifest.BLOCK_BYTES + 10))
    described = manifest.described(tmp_path, file, "part")
    flip(file, 2 * manifest.BLOCK_BYTES + 3)
    with pytest.raises(manifest.Damaged, match=r"bytes 33554432 to 33554441"):
        manifest._verify_file(file, described)


def test_a_newer_version_is_refused(parts: list[BackupPart], backup: Path) -> None:
    changed_manifest(backup, version="99.1")
    with pytest.raises(RestoreRefused, match=r"99\.1"):
        restore(backup, parts, said, force=True)
    changed_manifest(backup, version="0.0.1", migrations=["jobs.9999_later"])
    with pytest.raises(RestoreRefused, match=r"jobs\.9999_later"):
        restore(backup, parts, said, force=True)


def test_what_is_there_is_moved_aside_on_request_only(
    parts: list[BackupPart], backup: Path, data: Path
) -> None:
    before = state_of(data)
    with pytest.raises(RestoreRefused, match=r"database, spiders; .*--force"):
        restore(backup, parts, said)
    assert state_of(data) == before | {DATABASE_NAME: (data / DATABASE_NAME).read_bytes()}
    restore(backup, parts, said, force=True)
    assert (data / "spiders" / "mine.py").read_text() == "old"
    assert (data / DATABASE_NAME).read_bytes() == (backup / DATABASE).read_bytes()
    (aside,) = data.glob("spiders.before-restore-*")
    assert (aside / "mine.py").read_text() == "new"
    assert len(list(data.glob("crawlyard.sqlite3.before-restore-*"))) == 1
    assert not restore_mark().exists()


def test_keys_that_open_nothing_are_refused(
    parts: list[BackupPart], data: Path, tmp_path: Path, settings: Any
) -> None:
    project = Project(name="P", slug="p")
    project.git_password = "canary"
    project.save()
    made = make_backup(tmp_path / "one", parts, [], said)
    settings.SECRETBOX_KEYS = [generate_key()]
    with pytest.raises(RestoreRefused, match=r"SECRETBOX_KEYS lacks .*\(1 secrets\)"):
        restore(tmp_path / "one", parts, said, force=True)
    restore(tmp_path / "one", parts, said, force=True, other_keys=True)
    assert [key.setting for key in made.keys] == ["SECRETBOX_KEYS", "SECRET_KEY"]


def test_a_store_of_another_kind_is_refused(parts: list[BackupPart], backup: Path) -> None:
    elsewhere = BackupPart(
        "database", PartKind.POSTGRES, "DATABASE_URL", "postgresql://nobody@127.0.0.1:9/x"
    )
    with pytest.raises(RestoreRefused, match="sqlite in the backup and is postgresql here"):
        restore(backup, [elsewhere, *parts[1:]], said)


def test_a_store_somebody_has_open_is_not_replaced(
    parts: list[BackupPart], backup: Path, data: Path
) -> None:
    with closing(sqlite3.connect(data / DATABASE_NAME)) as idle:
        idle.execute("PRAGMA journal_mode=WAL")
        idle.execute("SELECT count(*) FROM runtime_daemon").fetchall()
        with pytest.raises(RestoreRefused, match="in use"):
            restore(backup, parts, said, force=True)


def test_a_damaged_store_of_seeds_is_what_a_restore_is_for(
    parts: list[BackupPart], data: Path, tmp_path: Path, settings: Any
) -> None:
    folder = data / "seeds"
    settings.SEEDS_URL = f"rocksdb://{folder}"
    RocksStore(folder).close()
    parts = [*parts, BackupPart("seeds", PartKind.ROCKS, "SEEDS_URL", str(folder))]
    make_backup(tmp_path / "two", parts, [], said)
    (folder / "db" / "CURRENT").write_text("nothing of RocksDB")
    with pytest.raises(SeedStoreUnavailable):
        RocksStore(folder)
    restore(tmp_path / "two", parts, said, force=True)
    RocksStore(folder).close()


def test_a_daemon_that_is_alive_is_named(parts: list[BackupPart], backup: Path) -> None:
    Daemon.objects.create(
        kind="statistics",
        name="counter",
        host="here",
        pid=1,
        boot="b",
        state=DaemonState.RUNNING,
        beat_at=timezone.now(),
    )
    with pytest.raises(RestoreRefused, match="statistics counter"):
        restore(backup, parts, said, force=True)


def test_a_step_that_fails_takes_all_of_them_back(
    parts: list[BackupPart], backup: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state_of(data)
    rename, renamed = Path.rename, []

    def failing(path: Path, target: Path) -> Path:
        renamed.append(target)
        if path.name == ".spiders.restoring":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(BackupError, match="No space left on device; everything is as it was"):
        restore(backup, parts, said, force=True)
    assert len(renamed) > 3
    after = state_of(data)
    assert after["spiders/mine.py"] == b"new"
    assert set(after) == set(before)


def test_without_a_folder_for_its_mark_nothing_is_replaced(
    parts: list[BackupPart], backup: Path, data: Path, tmp_path: Path, settings: Any
) -> None:
    settings.DATA_DIR = tmp_path / "gone"
    before = state_of(data)
    with pytest.raises(BackupError, match="No such file or directory; everything is as it was"):
        restore(backup, parts, said, force=True)
    assert set(state_of(data)) == set(before)
    assert (data / "spiders" / "mine.py").read_text() == "new"


def test_no_daemon_starts_on_what_a_killed_restore_left(data: Path) -> None:
    assert "runtime.E003" not in {each.id for each in run_checks(tags=[START_TAG])}
    restore_mark().touch()
    (problem,) = (each for each in run_checks(tags=[START_TAG]) if each.id == "runtime.E003")
    assert "restore" in str(problem.hint)


def test_a_backup_that_is_there_is_not_touched(parts: list[BackupPart], backup: Path) -> None:
    before = state_of(backup)
    with pytest.raises(RestoreRefused, match="is there already"):
        make_backup(backup, parts, [], said)
    assert state_of(backup) == before


def test_a_backup_into_what_it_holds_is_refused(parts: list[BackupPart], data: Path) -> None:
    """The next one would hold this one."""
    with pytest.raises(RestoreRefused, match="lies inside"):
        make_backup(data / "spiders" / "one", parts, [], said)
    assert [each.name for each in (data / "spiders").iterdir()] == ["mine.py"]


@pytest.mark.slow("6 s")
@pytest.mark.parametrize("limit", [1_000_000, 2_000_000])
def test_no_room_leaves_no_half_backup(tmp_path: Path, limit: int) -> None:
    """A limit of the process is what a full disk is: a write that is refused half-way."""
    installation = Daemons(tmp_path / "here")
    installation.migrate()
    spiders = tmp_path / "here" / "data" / "spiders"
    spiders.mkdir()
    (spiders / "large").write_bytes(b"x" * 3_000_000)
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "backup", str(tmp_path / "full" / "one")],
        env=installation.environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "there is no backup" in done.stderr
    assert list((tmp_path / "full").iterdir()) == []
