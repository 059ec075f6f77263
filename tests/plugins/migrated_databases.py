"""Databases as ``manage.py migrate`` leaves them: migrated once for each state of the sources.

It takes longer than all the tests of most files. So what it leaves is kept beside
pytest's cache, and copied: for tests that want a database of their own, and into the one in memory
that the others share. That one keeps the rows that migrations made, also after a test that empties
all tables.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate

from tools.requirement_marks import ROOT

# As the settings call it, in the data folder.
SQLITE_NAME = "crawlyard.sqlite3"
_SECONDS = 300
_KEPT = ROOT / ".pytest_cache" / "migrated"
_KEPT_SECONDS = 24 * 3600


def migrate(data: Path, *arguments: str, **environment: str) -> None:
    """Run ``manage.py migrate`` as on a new installation, with this data folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CRAWLYARD_", "DJANGO_"))
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "migrate", "-v0", *arguments],
        env={**kept, "CRAWLYARD_DATA": str(data), **environment},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """What processes of tests share is made by the first of them, and the others wait."""
    _KEPT.mkdir(parents=True, exist_ok=True)
    with (_KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def _sqlite() -> Path:
    """The migrated database; processes that want it at once make it once."""
    with one_at_a_time():
        path = _KEPT / f"{state_of_sources()}.sqlite3"
        if not path.exists():
            _forget_old_ones()
            with tempfile.TemporaryDirectory(dir=_KEPT) as folder:
                migrate(Path(folder))
                made = Path(folder, SQLITE_NAME)
                with contextlib.closing(sqlite3.connect(made)) as database:
                    # One in memory takes no copy of one with a log.
                    database.execute("PRAGMA journal_mode=DELETE")
                made.replace(path)
        # Who uses it keeps it.
        os.utime(path)
    return path


def state_of_sources() -> str:
    """Whatever may change what migrations leave: also what runs after them."""
    state = hashlib.sha256(sys.version.encode())
    sources = [ROOT / "requirements.txt"]
    for name in ("apps", "platform"):
        sources += sorted((ROOT / name).rglob("*.py"))
    for path in sources:
        state.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return state.hexdigest()[:24]


def _forget_old_ones() -> None:
    for path in _KEPT.glob("*.sqlite3"):
        if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
            path.unlink()


def fill_data_folder(data: Path) -> None:
    """Put a migrated database into a data folder that has none; it may not exist yet."""
    data.mkdir(parents=True, exist_ok=True)
    copy_sqlite(data / SQLITE_NAME)


def copy_sqlite(path: Path) -> None:
    """A migrated database in this file."""
    with (
        contextlib.closing(sqlite3.connect(_sqlite())) as source,
        contextlib.closing(sqlite3.connect(path)) as target,
    ):
        # What the settings ask for, and a database keeps.
        target.execute("PRAGMA journal_mode=WAL")
        source.backup(target)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None) -> Iterator[None]:
    """A database in memory is filled as it begins, so that the migrations find nothing to do."""

    def fill(connection: Any, **told: Any) -> None:
        if connection.vendor == "sqlite" and connection.is_in_memory_db():
            connection_created.disconnect(fill)
            with contextlib.closing(sqlite3.connect(_sqlite())) as source:
                source.backup(connection.connection)

    connection_created.connect(fill)
    yield
    connection_created.disconnect(fill)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """As pytest-django's, and the rows are put back whenever Django has emptied the tables.

    It does so after each test with transactions of its own, and tells every app afterwards.
    """
    with django_db_blocker.unblock():
        rows = connection.creation.serialize_db_to_string()

    def put_back(**told: Any) -> None:
        # The plan is what migrations tell, which empty nothing.
        if "plan" not in told:
            connection.creation.deserialize_db_from_string(rows)

    # One of the apps is enough, and this one is installed wherever there is a database.
    sender = apps.get_app_config("runtime")
    post_migrate.connect(put_back, sender=sender)
    yield
    post_migrate.disconnect(put_back, sender=sender)
