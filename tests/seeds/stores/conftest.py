"""Both stores, empty, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.seeds.stores.base import SeedStore
from apps.seeds.stores.postgres import PostgresStore
from apps.seeds.stores.rocks import RocksStore
from tests.seeds.stores.tables import check_queue


def open_rocks(folder: Path) -> SeedStore:
    """Without waiting for the disk: what a test needs survives its process."""
    return RocksStore(folder / "seeds", sync=False)


@pytest.fixture
def postgres_url(empty_database: str) -> str:
    """A database without seeds."""
    return empty_database


@pytest.fixture(
    params=[
        "rocks",
        pytest.param("postgres", marks=[pytest.mark.services, pytest.mark.slow("1 s")]),
    ]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SeedStore]:
    """An empty store; what it promises holds for each of them."""
    made = (
        open_rocks(tmp_path)
        if request.param == "rocks"
        else PostgresStore(request.getfixturevalue("postgres_url"))
    )
    yield made
    made.close()
    if request.param == "postgres":
        check_queue(request.getfixturevalue("postgres_url"))
