"""The life of runs on PostgreSQL, where two really write at the same moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import WHOLE_FILES, run_again

AGAIN = ("test_lifecycle", "test_overlap", "test_retries", "test_services")


@WHOLE_FILES
@pytest.mark.services
@pytest.mark.timeout(300)
def test_runs_live_on_postgresql_too(postgres_database: str) -> None:
    run_again([Path(__file__).with_name(f"{name}.py") for name in AGAIN], postgres_database)


@pytest.mark.slow("45 s")
@pytest.mark.services
@pytest.mark.timeout(300)
def test_many_change_runs_at_once(postgres_database: str) -> None:
    run_again([Path(__file__).with_name("concurrent_commands.py")], postgres_database)
