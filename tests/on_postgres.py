"""Runs tests a second time, on PostgreSQL, which refuses and locks other things than SQLite."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.runtime.processes import ROOT


def run_again(files: Iterable[Path], database: str) -> None:
    """Run these test files in a process of their own whose database is ``database``."""
    settings = {"DATABASE_URL": database, "DJANGO_SETTINGS_MODULE": "tests.postgres_settings"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, files)],
        env=os.environ | settings,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
