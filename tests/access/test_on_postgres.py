"""The same nonsense on PostgreSQL, which refuses other values than SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import AGAIN_SECONDS, WHOLE_FILES, run_again

AGAIN = ("test_invalid_input", "test_pagination", "test_idempotency", "on_postgres")


@WHOLE_FILES
@pytest.mark.services
@pytest.mark.fuzz
@pytest.mark.timeout(AGAIN_SECONDS + 20)
@pytest.mark.parametrize("name", AGAIN)
def test_nothing_fails_on_postgresql_either(name: str, postgres_database: str) -> None:
    run_again([Path(__file__).with_name(f"{name}.py")], postgres_database)
