"""The router on PostgreSQL, and on a SQLite file shared by several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import WHOLE_FILES, run_again

AGAIN = (
    "test_routing",
    "test_results",
    "test_parked_items",
    "test_intake",
    "test_rules",
    "test_failure_file",
    "test_long_writes",
)
FILES = [Path(__file__).with_name(f"{name}.py") for name in AGAIN]


@WHOLE_FILES
@pytest.mark.services
@pytest.mark.timeout(400)
def test_the_router_on_postgresql(postgres_database: str) -> None:
    run_again(FILES, postgres_database)


@WHOLE_FILES
@pytest.mark.timeout(400)
def test_the_router_on_a_file(tmp_path: Path) -> None:
    run_again(FILES[:2], f"sqlite:///{tmp_path / 'again.sqlite3'}")
