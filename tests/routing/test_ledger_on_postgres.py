"""The ledger on PostgreSQL, which has its own SQL statements and concurrent writers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import WHOLE_FILES, run_again

AGAIN = ("test_ledger", "test_ledger_search", "test_ledger_model")


@WHOLE_FILES
@pytest.mark.services
@pytest.mark.timeout(300)
def test_the_ledger_on_postgresql(postgres_database: str) -> None:
    run_again([Path(__file__).with_name(f"{name}.py") for name in AGAIN], postgres_database)


@pytest.mark.slow("15 s")
@pytest.mark.services
@pytest.mark.timeout(300)
def test_several_write_the_ledger_at_once(postgres_database: str) -> None:
    run_again([Path(__file__).with_name("concurrent_ledger_writes.py")], postgres_database)
