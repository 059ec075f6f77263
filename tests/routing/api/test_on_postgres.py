"""Concurrent submissions on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import AGAIN_SECONDS, WHOLE_FILES, run_again

AGAIN = ("test_seed_paths", "test_seed_results", "test_items_api", "test_projects_api")


@WHOLE_FILES
@pytest.mark.services
@pytest.mark.timeout(AGAIN_SECONDS + 20)
def test_routing_over_http_on_postgresql(postgres_database: str) -> None:
    run_again([Path(__file__).with_name(f"{name}.py") for name in AGAIN], postgres_database)


@pytest.mark.slow("15 s")
@pytest.mark.services
@pytest.mark.timeout(300)
def test_many_clients_are_served_at_once(postgres_database: str) -> None:
    run_again([Path(__file__).with_name("concurrent_submissions.py")], postgres_database)
