"""The tests that write agents and allocations, again on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import WHOLE_FILES, run_again

AGAIN = (
    "test_agent_selection",
    "test_history",
    "test_migrations",
    "test_mode_changes",
    "test_services",
)


@WHOLE_FILES
@pytest.mark.services
@pytest.mark.timeout(300)
def test_agents_are_kept_on_postgresql_too(postgres_database: str) -> None:
    run_again([Path(__file__).with_name(f"{name}.py") for name in AGAIN], postgres_database)
