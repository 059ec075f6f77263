"""On PostgreSQL, where two really write the same samples at the same moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import WHOLE_FILES, run_again

HERE = Path(__file__)
AGAIN = [
    HERE.with_name("test_samples.py"),
    HERE.with_name("test_services.py"),
    HERE.with_name("test_rates.py"),
    HERE.with_name("test_gauge_samples.py"),
    HERE.parents[1] / "requeststore" / "test_scaling.py",
]


@WHOLE_FILES
@pytest.mark.services
@pytest.mark.timeout(300)
@pytest.mark.covers("S4.24", "S4.25", "S4.28")
def test_samples_and_advice_on_postgres(postgres_database: str) -> None:
    run_again(AGAIN, postgres_database)


@pytest.mark.slow("15 s")
@pytest.mark.services
@pytest.mark.timeout(300)
def test_two_write_the_same_samples_at_once(postgres_database: str) -> None:
    run_again([Path(__file__).with_name("concurrent_writes.py")], postgres_database)
