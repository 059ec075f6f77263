"""What the migrations of this app do with rows that exist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.processes import ROOT


@pytest.mark.slow("10 s")
def test_switched_off_agents_drain_and_cookies_are_sealed_and_back_again(tmp_path: Path) -> None:
    # In a process of its own, from an empty database on: to take back what others have built upon
    # these migrations since would take ten times as long.
    settings = {
        "CRAWLYARD_TEST_DATA": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "crawlyard.settings.testing",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.agents.migration_rows"],
        env=os.environ | settings,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
