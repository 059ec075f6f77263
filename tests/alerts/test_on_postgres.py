"""Alert tests on PostgreSQL, with row locks and aborted transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import WHOLE_FILES, run_again

HERE = Path(__file__)
AGAIN = [
    HERE.with_name(f"test_{name}.py")
    for name in (
        "evaluation",
        "event_intake",
        "monitor",
        "sources",
        "rules_api",
        "delivery",
        "notifications",
        "channels",
        "yields",
        "yield_monitoring",
    )
]


@WHOLE_FILES
@pytest.mark.services
@pytest.mark.timeout(300)
@pytest.mark.covers("S4.27")
def test_monitor_and_incidents_on_postgres(postgres_database: str) -> None:
    run_again(AGAIN, postgres_database)
