"""Jobs on PostgreSQL, which compares JSON and locks rows in other ways than SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.again import run_again

FILES = ("test_bulk.py", "test_import_export.py", "test_execution_options.py", "test_links.py")


@pytest.mark.services
@pytest.mark.timeout(300)
def test_jobs_on_postgresql(postgres_database: str) -> None:
    here = Path(__file__)
    run_again([here.with_name(name) for name in FILES], postgres_database)
