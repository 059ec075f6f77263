"""Logs on PostgreSQL: the lines and what is kept of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import WHOLE_FILES, run_again

AGAIN = (
    "test_daemon",
    "test_errors_page",
    "test_groups",
    "test_retention",
    "test_search",
    "test_services",
)


@WHOLE_FILES
@pytest.mark.services
@pytest.mark.timeout(400)
def test_lines_are_stored_on_postgresql_too(postgres_database: str) -> None:
    run_again([Path(__file__).with_name(f"{name}.py") for name in AGAIN], postgres_database)
