"""The tests that write agents and allocations, again on PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.processes import ROOT

AGAIN = ("test_choosing", "test_history", "test_migrations", "test_services", "test_switching")


@pytest.mark.services
@pytest.mark.timeout(300)
def test_agents_are_kept_on_postgresql_too(postgres_database: str) -> None:
    files = [str(Path(__file__).with_name(f"{name}.py")) for name in AGAIN]
    environment = {
        "DATABASE_URL": postgres_database,
        "DJANGO_SETTINGS_MODULE": "tests.postgres_settings",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
