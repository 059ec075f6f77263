"""What tests of faults have measured, for the column *Measured* of docs/reliability.md.

A test says ``measured(of=251, lost=0, twice=0, back_s=0.4)`` of what it has counted itself. In a
full run (``CRAWLYARD_FAULTS=full``) it is kept in ``.pytest_cache/faults.json``, test by test, and
what an earlier run has kept of others stays, so that the full size can be run in pieces;
``make reliability-doc`` writes it into the document.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Protocol

import pytest

from tests.plugins.sparing import FULL_FAULTS

KEPT = Path(__file__).resolve().parents[2] / ".pytest_cache" / "faults.json"


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
        *,
        of: int = 0,
        lost: int = 0,
        twice: int = 0,
        back_s: float | None = None,
        note: str = "",
    ) -> None:
        told = {"of": of, "lost": lost, "twice": twice, "back_s": back_s, "note": note}
        request.node.user_properties.append(("measured", told))
        print(told)

    return say


class Keeper:
    """Keeps what each test has measured, in the process that has the reports of all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: dict[str, dict[str, object]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what a test of faults has ended with; nothing of one that was skipped."""
        if "fault" not in report.keywords or report.skipped:
            return
        if report.when != "call" and report.passed:
            return
        # pytest-xdist puts its group behind.
        nodeid = re.sub(r"@[^\]]*$", "", report.nodeid)
        self.found[nodeid] = {
            "passed": report.passed,
            "seconds": round(report.duration, 1),
            "measured": [told for name, told in report.user_properties if name == "measured"],
        }

    def pytest_sessionfinish(self) -> None:
        """Write it down beside what earlier runs have kept."""
        if not self.found:
            return
        kept = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.path.parent.mkdir(exist_ok=True)
        aside = self.path.with_suffix(".new")
        aside.write_text(json.dumps(kept | self.found, indent=1, sort_keys=True))
        aside.replace(self.path)


def pytest_configure(config: pytest.Config) -> None:
    """Keep what is measured at the full size."""
    if FULL_FAULTS and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Keeper(KEPT), "kept-measures")
