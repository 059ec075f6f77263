"""On PostgreSQL, where two really write the same samples at the same moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.again import run_again

HERE = Path(__file__)
AGAIN = [
    HERE.with_name("test_samples.py"),
    HERE.with_name("test_services.py"),
    HERE.with_name("test_growth.py"),
    HERE.with_name("test_sampling.py"),
    HERE.with_name("at_once.py"),
    HERE.parents[1] / "requeststore" / "test_scaling.py",
]


@pytest.mark.services
@pytest.mark.timeout(300)
@pytest.mark.covers("S4.24", "S4.25", "S4.28")
def test_samples_and_advice_on_postgres(postgres_database: str) -> None:
    run_again(AGAIN, postgres_database)
