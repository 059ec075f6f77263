"""Two ingesters side by side, one of which stands still for longer than anyone waits."""

from __future__ import annotations

import pytest

from tests.joblogs.faults.yard import FULL, Yard

POINTS = ["joblogs.before_write", *(["joblogs.before_ack"] if FULL else [])]
pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]


@pytest.mark.covers("S1.18")
@pytest.mark.parametrize("point", POINTS)
def test_one_of_two_is_frozen_and_wakes(yard: Yard, point: str) -> None:
    """It wakes with lines in hand that the other one may have stored meanwhile."""
    yard.start("frozen", f"{point}=stop:12@1")
    yard.daemons.until_logged("frozen", "is running")
    yard.start("other")
    yard.until_settled()
    yard.check_books()
    for name in ("frozen", "other"):
        assert "Traceback" not in yard.daemons.log(name)
