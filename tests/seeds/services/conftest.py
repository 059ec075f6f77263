"""A small seed service with each of the stores behind it, and a frontier."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.runtime.services import close_shared_broker
from apps.seeds.models import Frontier
from apps.seeds.services import operation_steps
from apps.seeds.stores.base import SeedStore
from apps.seeds.stores.postgres import PostgresStore
from apps.seeds.stores.rocks import RocksStore
from tests.access.factories import make_project
from tests.seeds.services.small_service import Desk


def open_store(request: pytest.FixtureRequest, kind: str, folder: Path) -> SeedStore:
    """An empty one."""
    if kind == "rocks":
        return RocksStore(folder / "seeds", sync=False)
    return PostgresStore(request.getfixturevalue("empty_database"))


@pytest.fixture(
    params=[
        "rocks",
        pytest.param("postgres", marks=[pytest.mark.services, pytest.mark.slow("1 s")]),
    ]
)
def desk(
    request: pytest.FixtureRequest, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    """The service; what it says holds for each store."""
    settings.BROKER_URL = f"sqlite:///{tmp_path / 'broker.sqlite3'}"
    # No other process has to hear of a freeze.
    monkeypatch.setattr(operation_steps, "SETTLE_SECONDS", 0.0)
    store = open_store(request, request.param, tmp_path)
    desk = Desk(store)
    yield desk
    desk.close()
    store.close()
    close_shared_broker()


@pytest.fixture
def frontier(desk: Desk, db: None) -> Frontier:
    """By day, in UTC."""
    made = Frontier.objects.create(project=make_project(), name="news")
    desk.follow(made)
    return made
