"""deploy/drill.py, which docs/runbook.md tells people to follow: every process has its drill."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crawlyard.units import box
from deploy.drill import WORDS
from tests.deploy.test_stack import TOKEN
from tests.e2e.demo_process import free_port
from tools.requirement_marks import ROOT

SECTIONS = {
    "logs": "log_ingester",
    "datasets": "dataset_writer",
    "builds": "worker",
    "agent-1": "agent",
}


def test_every_process_of_a_box_can_be_killed_and_has_a_section() -> None:
    assert {unit.name for unit in box(host="x", port=1, agents=1)} == set(WORDS)
    runbook = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", runbook, flags=re.M)
    for name in WORDS:
        title = "web" if name == "web" else f"run_{SECTIONS.get(name, name)}"
        section = next(each for each in sections if title in each.splitlines()[0].split())
        assert "**Drill" in section, name
        assert "**Lost:**" in section, name


@pytest.mark.fault
@pytest.mark.long("test_every_process_of_a_box_can_be_killed_and_has_a_section")
@pytest.mark.timeout(600)
def test_the_drill_of_all_processes_balances_its_books(tmp_path: Path) -> None:
    port, site = free_port(), free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "CRAWLYARD_DATA": str(tmp_path / "data"),
        "SOURCES_ALLOWED_NETWORKS": "127.0.0.0/8",
        "REST_RATE": "none",
        "RUN_MAX_CPU_PERCENT": "101",
    }
    manage = [sys.executable, str(ROOT / "manage.py")]
    with (tmp_path / "up.log").open("wb") as log:
        up = subprocess.Popen(
            [*manage, "up", "--port", str(port)], env=environment, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 120
        while "Ctrl-C stops" not in (tmp_path / "up.log").read_text(errors="replace"):
            assert up.poll() is None, (tmp_path / "up.log").read_text(errors="replace")
            assert time.monotonic() < deadline
            time.sleep(0.2)
        token = subprocess.run(
            [*manage, "shell", "-v0", "-c", TOKEN],
            env=environment, capture_output=True, text=True, timeout=60, check=True,
        ).stdout.splitlines()[-1].strip('"')  # fmt: skip
        done = subprocess.run(
            [
                *(sys.executable, str(ROOT / "deploy" / "drill.py"), "--up", str(up.pid)),
                *("--url", f"http://127.0.0.1:{port}", "--site-port", str(site)),
            ],
            env={**environment, "CRAWLYARD_TOKEN": token},
            capture_output=True, text=True, timeout=480, check=False,
        )  # fmt: skip
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(30)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if "started again" in line] == list(WORDS)
    assert sum(line.startswith("ok ") for line in lines) == 5, done.stdout
