"""SIGKILL, SIGSTOP or an exception in every window of storing, queueing, counting and moving.

Each request is there exactly once afterwards.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.daemon_processes import is_frozen
from tests.plugins.measurements import Measured
from tests.plugins.migrated_databases import fill_data_folder
from tests.requeststore.faults.worker import LATE, NUMBER
from tools.requirement_marks import ROOT

pytestmark = [pytest.mark.fault, pytest.mark.timeout(200)]
PATIENCE = 100
SHORT = pytest.mark.long("some of the windows of SIGKILL")


class Hands:
    """A worker in a process of its own."""

    def __init__(self, data: Path, failpoint: str = "") -> None:
        self.errors = data / f"worker-{time.monotonic_ns()}.log"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.requeststore.faults.worker", str(data / "ids")],
                cwd=ROOT,
                env=os.environ
                | {
                    "CRAWLYARD_DATA": str(data),
                    "FAILPOINTS": failpoint,
                    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._line() == "ready", self.said()

    def said(self) -> str:
        return self.errors.read_text(errors="replace")[-3000:]

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def begin(self, verbs: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{verbs}\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What there is when it has done all that it was told."""
        line = self._line()
        assert line, self.said()
        found: dict[str, Any] = json.loads(line)
        return found

    def do(self, verbs: str) -> dict[str, Any]:
        self.begin(verbs)
        return self.answer()

    def until_frozen(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_frozen(self.process):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.01)

    def wake(self) -> None:
        """Now, and not when its failpoint would."""
        for waker in psutil.Process(self.process.pid).children():
            waker.kill()
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)


Start = Callable[..., Hands]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill_data_folder(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def start(data: Path) -> Iterator[Start]:
    hands: list[Hands] = []

    def start(failpoint: str = "") -> Hands:
        hands.append(Hands(data, failpoint))
        return hands[-1]

    yield start
    for each in hands:
        each.close()


def check(data: Path, found: dict[str, Any], measured: Measured, **more: float) -> None:
    """Each is in the books once, and deleted at the end of its time."""
    kept = json.loads((data / "ids").read_text())
    late = LATE * kept["came_late"]
    done = sum(1 for each in kept["ids"] if each % 3)
    assert len(kept["ids"]) == NUMBER
    expected = {"1": done, "-2": NUMBER - done + late}
    books = {flag: number for flag, number in found["books"].items() if number}
    gaps = [expected.get(flag, 0) - books.get(flag, 0) for flag in expected | books]
    lost, twice = sum(gap for gap in gaps if gap > 0), -sum(gap for gap in gaps if gap < 0)
    measured(of=NUMBER + late, lost=lost, twice=twice, **more)
    assert books == expected
    assert found["stored"] == 0


CLOSING = "submit process close"
OF_LATE = "submit process expire straggle count"
WINDOWS = [
    # Killed at this point while doing the first verbs; then the others, and the books.
    ("requests.after_insert", "submit", "keep process close"),
    ("requests.after_push", "submit", "submit keep process close"),
    ("requests.in_close", CLOSING, "close"),
    ("requests.after_give_back", "submit give_back", "late process close"),
    ("requests.in_fold", f"{CLOSING} fold", "fold"),
]
MORE = [
    ("requests.after_insert", "submit", "submit process close"),
    ("requests.after_requeue", "store keep", "keep process close"),
    ("requests.after_take", "submit process", "late process close"),
    ("requests.after_finish", "submit process", "keep process close"),
    ("requests.after_overdue", "submit hold late", "late process close"),
    ("requests.after_expire", CLOSING, "close"),
    ("requests.before_close", CLOSING, "close"),
    ("requests.after_close", CLOSING, "close"),
    ("requests.after_delete", CLOSING, "close"),
    ("requests.after_late", OF_LATE, "count close"),
]
MOVING = [
    (point, "submit spread", "take_over process close")
    for point in (
        "requeststore.move.started",
        "requeststore.move.received",
        "requeststore.move.ended",
        "requeststore.rebalance.claimed",
        "requeststore.rebalance.step",
    )
]


@pytest.mark.covers("S4.22", "S4.23")
@pytest.mark.parametrize(
    ("point", "before", "after"),
    [*WINDOWS, *(pytest.param(*each, marks=SHORT) for each in MORE + MOVING)],
)
def test_killed_there_each_request_is_stored_once_and_counted_once(
    data: Path, start: Start, measured: Measured, point: str, before: str, after: str
) -> None:
    killed = start(f"{point}=kill@1")
    killed.begin(before)
    assert killed.process.wait(PATIENCE) == -signal.SIGKILL, killed.said()
    began = time.monotonic()
    worker = start()
    first, _space, others = after.partition(" ")
    found = worker.do(first)
    back = time.monotonic() - began
    check(data, worker.do(others) if others else found, measured, back_s=back)


@SHORT
@pytest.mark.covers("S4.22", "S4.23")
@pytest.mark.parametrize(("point", "before", "after"), WINDOWS + MORE)
def test_an_exception_there_loses_and_doubles_nothing(
    data: Path, start: Start, measured: Measured, point: str, before: str, after: str
) -> None:
    """Its process lives on, with what it has in hand. Moving: ``test_rebalancing``."""
    worker = start(f"{point}=raise@1")
    assert worker.do(before)["raised"] == [point]
    check(data, worker.do(after), measured)


# What another does while the first stands still, and what both have to do then.
STOPS = [
    ("requests.after_insert", "submit", "keep process", "keep process close"),
    ("requests.after_push", "submit", "submit keep process", "process close"),
    ("requests.after_requeue", "store keep", "keep process", "keep process close"),
    ("requests.after_take", "submit process", "late process", "late process close"),
    ("requests.after_finish", "submit process", "keep process", "keep process close"),
    ("requests.after_give_back", "submit give_back", "late process", "process close"),
    ("requests.after_overdue", "submit hold late", "late process", "late process close"),
    ("requests.after_expire", CLOSING, "close", "close"),
    ("requests.before_close", CLOSING, "close", "close"),
    ("requests.in_close", CLOSING, "close", "close"),
    ("requests.after_close", CLOSING, "close", "close"),
    ("requests.after_delete", CLOSING, "close", "close"),
    ("requests.after_late", OF_LATE, "count", "count close"),
    ("requests.in_fold", f"{CLOSING} fold", "fold", "fold"),
    *((point, before, "take_over process", "process close") for point, before, _after in MOVING),
]
# In a transaction: the other one waits until the first wakes by itself.
LOCKED = {"requests.in_close", "requests.in_fold"}


@SHORT
@pytest.mark.covers("S4.22", "S4.23")
@pytest.mark.parametrize(("point", "before", "meanwhile", "after"), STOPS)
def test_frozen_there_while_another_does_it_nothing_is_lost_or_counted_twice(
    data: Path,
    start: Start,
    measured: Measured,
    point: str,
    before: str,
    meanwhile: str,
    after: str,
) -> None:
    frozen = start(f"{point}=stop:{12 if point in LOCKED else 60}@1")
    other = start()
    frozen.begin(before)
    frozen.until_frozen()
    other.do(meanwhile)
    assert is_frozen(frozen.process) == (point not in LOCKED)
    frozen.wake()
    frozen.answer()
    check(data, other.do(after), measured)


def test_every_failpoint_is_tried_in_every_way() -> None:
    sources = [*(ROOT / "apps" / "requeststore" / "services").rglob("*.py")]
    sources += (ROOT / "apps" / "requeststore" / "stores").rglob("*.py")
    calls = re.compile(r'\bhit\("([a-z_.]+)"\)')
    found = {name for path in sources for name in calls.findall(path.read_text("utf-8"))}
    # Tried where pages are kept.
    elsewhere = "requeststore.reextraction.stored"
    tests = ROOT / "tests" / "requeststore" / "daemon" / "test_kept_pages.py"
    assert f'"{elsewhere}=kill@' in tests.read_text("utf-8")
    found.remove(elsewhere)
    assert found == {each[0] for each in STOPS}
    assert found == {each[0] for each in WINDOWS + MORE + MOVING}
