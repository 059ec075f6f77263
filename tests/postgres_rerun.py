"""Runs tests a second time, on a database that refuses and locks other things than SQLite."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.plugins.long_tests import DEADLINE, END
from tests.plugins.migrated_databases import copy_sqlite
from tests.runtime.processes import ROOT

# A third of it is enough where nothing else runs.
AGAIN_SECONDS = 400
# Of whole files; what many do at once has tests that always run on PostgreSQL.
WHOLE_FILES = pytest.mark.long("the same on SQLite")


def run_again(files: Iterable[Path], database: str, *arguments: str) -> str:
    """Run these test files in a process of their own whose database is ``database``, a URL.

    A PostgreSQL database is one on loan; a file of SQLite is made. Returns what was said; all of
    them must pass.
    """
    if database.startswith("sqlite:///"):
        copy_sqlite(Path(database.removeprefix("sqlite:///")))
        arguments = (*arguments, "--reuse-db")
    settings = {
        "CRAWLYARD_TEST_DATABASE_URL": database,
        "DJANGO_SETTINGS_MODULE": "tests.shared_database",
    }
    # The time for tests is that of the test that runs these.
    kept = {name: value for name, value in os.environ.items() if name not in (DEADLINE, END)}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *map(str, files),
            *arguments,
        ],
        env=kept | settings,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=AGAIN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout
