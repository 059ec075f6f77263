"""Databases as ``manage.py migrate`` leaves them: migrated once in each process, and copied.

The migrations take longer than most tests that want a database of their own. The database that
tests share keeps the rows that migrations made, also after a test that empties all tables.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.db.models.signals import post_migrate

from tools.requirement_marks import ROOT

# As the settings call it, in the data folder.
SQLITE_NAME = "crawlyard.sqlite3"
_SECONDS = 300


def migrate(data: Path, **environment: str) -> None:
    """Run the migrations as they are run on a new installation, with this data folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CRAWLYARD_", "DJANGO_"))
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "migrate", "-v0"],
        env={**kept, "CRAWLYARD_DATA": str(data), **environment},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@cache
def _sqlite() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="crawlyard-migrated-"))
    migrate(folder)
    return folder / SQLITE_NAME


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


def pytest_unconfigure() -> None:
    """Remove what was copied from."""
    if _sqlite.cache_info().currsize:
        shutil.rmtree(_sqlite().parent, ignore_errors=True)
