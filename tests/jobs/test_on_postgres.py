"""Jobs on PostgreSQL, which compares JSON and locks rows in other ways than SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import AGAIN_SECONDS, WHOLE_FILES, run_again

AGAIN = ("test_bulk", "test_import_export", "test_execution_options", "test_links")


@WHOLE_FILES
@pytest.mark.services
@pytest.mark.timeout(AGAIN_SECONDS + 20)
def test_jobs_on_postgresql(postgres_database: str) -> None:
    run_again([Path(__file__).with_name(f"{name}.py") for name in AGAIN], postgres_database)
