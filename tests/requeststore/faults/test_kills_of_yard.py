"""SIGKILL in every window of storing, queueing and counting: each request is there exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.migrated import fill_data_folder
from tests.requeststore.faults.worker import NUMBER
from tools.requirement_marks import ROOT

pytestmark = pytest.mark.fault
PATIENCE = 100
FULL = os.environ.get("CRAWLYARD_FAULTS") == "full"


def work(data: Path, *verbs: str, point: str = "") -> dict[str, Any] | None:
    """What the worker said at its end; None when it was killed, as it should be."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.requeststore.faults.worker", str(data / "ids"), *verbs],
        cwd=ROOT,
        env=os.environ
        | {
            "CRAWLYARD_DATA": str(data),
            "FAILPOINTS": f"{point}=kill" if point else "",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if point:
        assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
        return None
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill_data_folder(tmp_path / "data")
    return tmp_path / "data"


def expected(data: Path) -> dict[str, int]:
    ids = json.loads((data / "ids").read_text())["ids"]
    assert len(ids) == NUMBER
    done = sum(1 for each in ids if each % 3)
    return {"1": done, "-2": NUMBER - done}


WINDOWS = [
    # Killed at this point while doing the first verbs; then the others, and the books.
    ("requests.after_insert", ["submit"], ["keep", "process", "close"]),
    ("requests.after_push", ["submit"], ["submit", "keep", "process", "close"]),
    ("requests.in_close", ["submit", "process", "close"], ["close"]),
    ("requests.after_give_back", ["submit", "give back"], ["late", "process", "close"]),
    ("requests.in_fold", ["submit", "process", "close", "fold"], ["fold"]),
]
MORE = [
    ("requests.after_insert", ["submit"], ["submit", "process", "close"]),
    ("requests.after_requeue", ["store", "keep"], ["keep", "process", "close"]),
    ("requests.after_take", ["submit", "process"], ["late", "process", "close"]),
    ("requests.after_finish", ["submit", "process"], ["keep", "process", "close"]),
    ("requests.after_expire", ["submit", "process", "close"], ["close"]),
    ("requests.before_close", ["submit", "process", "close"], ["close"]),
    ("requests.after_close", ["submit", "process", "close"], ["close"]),
    ("requests.after_delete", ["submit", "process", "close"], ["close"]),
]


@pytest.mark.covers("S4.22", "S4.23")
@pytest.mark.parametrize(("point", "before", "after"), WINDOWS + (MORE if FULL else []))
def test_killed_there_each_request_is_stored_once_and_counted_once(
    data: Path, point: str, before: list[str], after: list[str]
) -> None:
    work(data, *before, point=point)
    found = work(data, *after)
    assert found is not None
    assert {flag: number for flag, number in found["books"].items() if number} == expected(data)
    # Counted, and deleted at the end of their time.
    assert found["stored"] == 0
