"""Two ingesters side by side, one of which stands still for longer than anyone waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.joblogs.faults.ingester_processes import ELASTIC, KINDS, POINTS, IngesterHarness
from tests.plugins.measurements import Measured

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]
IN_SHORT = pytest.mark.long("frozen before it writes")


def cases() -> Iterator[Any]:
    """Every window on each pair of broker and log store."""
    for kind in KINDS:
        name = str(kind.values[0])
        for point in [*POINTS, *(ELASTIC if name == "elastic" else [])]:
            marks = [*kind.marks, *([] if point == POINTS[0] else [IN_SHORT])]
            yield pytest.param(name, point, marks=marks)


@pytest.fixture
def lines() -> int:
    """It takes twelve seconds with few and with many."""
    return 20_000


@pytest.mark.covers("S1.18")
@pytest.mark.parametrize(("harness", "point"), list(cases()), indirect=["harness"])
def test_one_of_two_is_frozen_and_wakes(
    harness: IngesterHarness, point: str, measured: Measured
) -> None:
    """It wakes with lines in hand that the other one may have stored meanwhile."""
    # Long enough for the other one to start and to come to what the frozen one has locked.
    harness.start("frozen", f"{point}=stop:12@1")
    harness.daemons.until_logged("frozen", "is running")
    harness.start("other")
    harness.daemons.until_frozen("frozen")
    harness.until_settled()
    measured(**harness.check_books())
    for name in ("frozen", "other"):
        assert "Traceback" not in harness.daemons.log(name)
