"""The same on PostgreSQL, which takes other values than SQLite and keeps transactions apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import AGAIN_SECONDS, WHOLE_FILES, run_again

AGAIN = (
    "test_calls",
    "test_management",
    "test_frontiers",
    "test_files",
    "test_grab",
    "test_outage",
)


@pytest.mark.services
@WHOLE_FILES
@pytest.mark.timeout(AGAIN_SECONDS + 20)
def test_seeds_over_rest_on_postgresql(postgres_database: str) -> None:
    run_again([Path(__file__).with_name(f"{name}.py") for name in AGAIN], postgres_database)
