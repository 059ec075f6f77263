"""Deliveries on PostgreSQL: it stores other texts than SQLite, and lets many write at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import WHOLE_FILES, run_again


@WHOLE_FILES
@pytest.mark.services
@pytest.mark.timeout(300)
def test_webhooks_on_postgresql(postgres_database: str) -> None:
    run_again([Path(__file__).with_name("test_webhooks.py")], postgres_database)


@pytest.mark.slow("20 s")
@pytest.mark.services
@pytest.mark.timeout(300)
@pytest.mark.covers("S1.4", "S1.6")
def test_deliveries_at_once(postgres_database: str) -> None:
    run_again([Path(__file__).with_name("concurrent_deliveries.py")], postgres_database)


@pytest.mark.slow("15 s")
@pytest.mark.timeout(300)
def test_deliveries_at_once_on_one_file(tmp_path: Path) -> None:
    """SQLite lets one write after the other."""
    database = f"sqlite:///{tmp_path / 'test.sqlite3'}"
    run_again([Path(__file__).with_name("concurrent_deliveries.py")], database, "-k", "not refused")
