"""The same nonsense on PostgreSQL, which refuses other values than SQLite."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.processes import ROOT

AGAIN = ("test_nonsense", "test_pagination", "test_idempotency")


@pytest.mark.services
@pytest.mark.timeout(300)
def test_nothing_fails_on_postgresql_either(postgres_database: str) -> None:
    files = [str(Path(__file__).with_name(f"{name}.py")) for name in AGAIN]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        env=os.environ | {"DATABASE_URL": postgres_database},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
