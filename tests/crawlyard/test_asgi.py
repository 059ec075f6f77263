"""The web process refuses bad settings in one line, as the commands do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.requirement_marks import ROOT


@pytest.mark.slow("2 s")
def test_a_bad_setting_is_one_line_and_exit_status_2(tmp_path: Path) -> None:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "crawlyard.settings.base",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
        "CRAWLYARD_DATA": str(tmp_path / "data"),
        "DATABASE_URL": "mysql://somewhere/else",
    }
    done = subprocess.run(
        [sys.executable, "-c", "import crawlyard.asgi"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("DATABASE_URL: ")
    assert done.stderr.count("\n") == 1
