"""A process of manage.py ends with all it owes, and without what nobody needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.requirement_marks import ROOT

CODE = """
import atexit, os, threading, time
import crawlyard
class Heavy:
    def __del__(self, write=os.write):
        write(1, b"taken apart\\n")
crawlyard.kept = Heavy()
atexit.register(print, "handler called")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread waited for"))).start()
"""


@pytest.mark.slow("10 s")
@pytest.mark.parametrize(
    ("last", "status", "said"),
    [
        ("", 0, ["thread waited for", "handler called"]),
        # What has not come to its end by itself is Python's as ever, its text and status included.
        ("raise SystemExit(3)", 3, ["thread waited for", "handler called", "taken apart"]),
    ],
)
def test_threads_and_exit_handlers_are_not_skipped(
    tmp_path: Path, last: str, status: int, said: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "shell", "-v0", "-c", CODE + last],
        env={"PATH": os.environ["PATH"], "CRAWLYARD_DATA": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()) == (status, said)
