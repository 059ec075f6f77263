"""A log store of a test's own, empty."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.conf import LazySettings

if TYPE_CHECKING:
    from apps.joblogs.stores.base import LogStore


@pytest.fixture
def log_store(tmp_path: Path, settings: LazySettings) -> Iterator[LogStore]:
    """What ``log_store()`` of the services gives while this test runs."""
    # Not at the top: some tests run with a few of the apps only.
    from apps.joblogs import services

    services.close_log_store()
    # Where tests run again on PostgreSQL, the lines are there too.
    database = os.environ.get("CRAWLYARD_TEST_DATABASE_URL", "")
    if database.startswith("postgres"):
        _empty(database)
        settings.LOGS_URL = database
    else:
        settings.LOGS_URL = f"sqlite://{tmp_path / 'logs'}"
    yield services.log_store()
    services.close_log_store()


def _empty(database: str) -> None:
    import psycopg

    from apps.joblogs.stores.postgres.schema import SCHEMA

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
