"""The same nonsense on PostgreSQL, which refuses other values than SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.again import run_again

AGAIN = ("test_nonsense", "test_pagination", "test_idempotency")


@pytest.mark.services
@pytest.mark.timeout(300)
def test_nothing_fails_on_postgresql_either(postgres_database: str) -> None:
    run_again([Path(__file__).with_name(f"{name}.py") for name in AGAIN], postgres_database)
