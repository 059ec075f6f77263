"""Further tests on PostgreSQL, which rejects other strings and has concurrent writers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import WHOLE_FILES, run_again

AGAIN = ("test_start_run", "test_arbitrary_items")


@WHOLE_FILES
@pytest.mark.services
@pytest.mark.timeout(300)
def test_items_start_runs_and_strange_ones_have_their_end(postgres_database: str) -> None:
    run_again([Path(__file__).with_name(f"{name}.py") for name in AGAIN], postgres_database)
