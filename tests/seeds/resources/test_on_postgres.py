"""The tests that lease, again on PostgreSQL, and from many threads at once on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres_rerun import run_again

pytestmark = pytest.mark.slow("many threads and processes at once")

HERE = Path(__file__).parent


@pytest.mark.services
@pytest.mark.timeout(300)
def test_resources_are_leased_on_postgresql_too(postgres_database: str) -> None:
    run_again([HERE / "test_leases.py", HERE / "test_decisions.py"], postgres_database)


@pytest.mark.services
@pytest.mark.covers("S3.21")
@pytest.mark.timeout(300)
def test_threads_never_share_a_resource_on_postgresql(postgres_database: str) -> None:
    run_again([HERE / "concurrent_leases.py"], postgres_database)


@pytest.mark.covers("S3.21")
@pytest.mark.timeout(300)
def test_threads_never_share_a_resource_on_sqlite(tmp_path: Path) -> None:
    run_again([HERE / "concurrent_leases.py"], f"sqlite:///{tmp_path / 'shared.sqlite3'}")


@pytest.mark.services
@pytest.mark.timeout(300)
def test_calls_over_brokers_with_postgresql(postgres_database: str) -> None:
    run_again([HERE / "broker_leases.py"], postgres_database)


@pytest.mark.timeout(300)
def test_calls_over_a_broker_with_sqlite(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'shared.sqlite3'}"
    run_again([HERE / "broker_leases.py"], database, "-m", "not services")
