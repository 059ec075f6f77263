"""What tests of faults have measured, for the column *Measured* of docs/reliability.md.

A test says ``measured(of=251, lost=0, twice=0, back_s=0.4)`` of what it has counted itself. In a
full run (``CRAWLYARD_FAULTS=full``) each test is a line of ``.pytest_cache/faults.jsonl`` as soon
as it has ended, and ``--resume`` leaves out those of which the last line says that they passed: a
run that was cut off goes on, and the full size can be run in pieces. ``make reliability-doc``
writes what is there into the document.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Protocol

import pytest

from tests.plugins.long_tests import FULL_FAULTS

KEPT = Path(__file__).resolve().parents[2] / ".pytest_cache" / "faults.jsonl"


class Measured(Protocol):
    """How a test says what it has counted."""

    def __call__(
        self,
        *,
        of: int = 0,
        lost: int = 0,
        twice: int = 0,
        back_s: float | None = None,
        note: str = "",
    ) -> None: ...


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Measured:
    """Tell what was counted: units of work, those lost, those done twice, seconds until it went on.

    ``note`` is for what is no such number: "100 MB, +0.1 MB after 3,000 more".
    """

    def say(
        *, of: int = 0, lost: int = 0, twice: int = 0, back_s: float | None = None, note: str = ""
    ) -> None:
        told = {"of": of, "lost": lost, "twice": twice, "back_s": back_s, "note": note}
        request.node.user_properties.append(("measured", told))
        print(told)

    return say


class Keeper:
    """Keeps what each test has measured, in the process that has the reports of all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write down what a test of faults has ended with; nothing of one that was skipped."""
        if "fault" not in report.keywords or report.skipped:
            return
        if report.when != "call" and report.passed:
            return
        found = {
            "test": _plain(report.nodeid),
            "passed": report.passed,
            "seconds": round(report.duration, 1),
            "measured": [told for name, told in report.user_properties if name == "measured"],
        }
        self.path.parent.mkdir(exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")


def _plain(nodeid: str) -> str:
    """Without the group that pytest-xdist puts behind."""
    return re.sub(r"@[^\]]*$", "", nodeid)


def passed(path: Path) -> set[str]:
    """The tests of which the last line in ``path`` says that they passed."""
    if not path.exists():
        return set()
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    last = {line["test"]: line["passed"] for line in lines}
    return {test for test, good in last.items() if good}


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--resume``."""
    parser.addoption("--resume", action="store_true", help="not what has passed at the full size")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has been measured."""
    done = passed(KEPT) if config.getoption("--resume") else set()
    left_out = [item for item in items if _plain(item.nodeid) in done]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _plain(item.nodeid) not in done]


def pytest_configure(config: pytest.Config) -> None:
    """Keep what is measured at the full size."""
    if FULL_FAULTS and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Keeper(KEPT), "kept-measures")
