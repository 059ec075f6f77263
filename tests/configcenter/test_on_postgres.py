"""Configuration tests with concurrent writers, on PostgreSQL and on one SQLite file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import WHOLE_FILES, run_again

HERE = Path(__file__).parent


@WHOLE_FILES
@pytest.mark.services
@pytest.mark.timeout(300)
def test_services_and_followers_on_postgresql(postgres_database: str) -> None:
    files = [HERE / "test_services.py", HERE / "test_watcher.py", HERE / "test_api.py"]
    run_again(files, postgres_database)


@pytest.mark.slow("15 s")
@pytest.mark.services
@pytest.mark.timeout(300)
def test_at_once_on_postgresql(postgres_database: str) -> None:
    said = run_again([HERE / "concurrent_writes.py"], postgres_database)
    assert "skipped" not in said


@pytest.mark.slow("25 s")
@pytest.mark.timeout(300)
def test_at_once_on_one_file(tmp_path: Path) -> None:
    """SQLite serializes writers."""
    database = f"sqlite:///{tmp_path / 'test.sqlite3'}"
    run_again([HERE / "concurrent_writes.py"], database, "-k", "not connection")
