"""Jobs on PostgreSQL, which compares JSON and locks rows in other ways than SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.again import AGAIN_SECONDS, run_again

FILES = ("test_bulk", "test_import_export", "test_execution_options", "test_links")


@pytest.mark.services
@pytest.mark.timeout(AGAIN_SECONDS + 20)
@pytest.mark.parametrize("name", FILES)
def test_jobs_on_postgresql(name: str, postgres_database: str) -> None:
    run_again([Path(__file__).with_name(f"{name}.py")], postgres_database)
