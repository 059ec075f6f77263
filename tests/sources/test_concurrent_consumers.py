"""Concurrent consumers of one queue, on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import run_again

TESTS = [Path(__file__).with_name("concurrent_consumers.py")]


@pytest.mark.slow("10 s")
@pytest.mark.services
@pytest.mark.covers("S0.36")
@pytest.mark.timeout(180)
def test_consumers_never_share_a_record_on_postgresql(postgres_database: str) -> None:
    run_again(TESTS, postgres_database)


@pytest.mark.slow("6 s")
@pytest.mark.covers("S0.36")
@pytest.mark.timeout(180)
def test_consumers_never_share_a_record_on_sqlite(tmp_path: Path) -> None:
    run_again(TESTS, f"sqlite:///{tmp_path / 'shared.sqlite3'}")
