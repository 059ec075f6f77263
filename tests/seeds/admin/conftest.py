"""A seed service that answers, and one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.projects.models import Project
from apps.runtime.services import close_shared_broker
from apps.seeds.admin import look_up, seed_forms
from apps.seeds.models import Frontier
from apps.seeds.services import frontiers, operation_steps
from apps.seeds.stores.rocks import RocksStore
from tests.access.factories import make_project
from tests.seeds.services.small_service import Desk


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def frontier(project: Project) -> Frontier:
    """By day, in UTC."""
    return Frontier.objects.create(project=project, name="news", keys="page")


@pytest.fixture
def desk(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch, frontier: Frontier
) -> Iterator[Desk]:
    """A small seed service over a real broker and store."""
    settings.BROKER_URL = f"sqlite:///{tmp_path / 'broker.sqlite3'}"
    # No other process has to hear of a freeze.
    for module in (operation_steps, frontiers):
        monkeypatch.setattr(module, "SETTLE_SECONDS", 0.0)
    store = RocksStore(tmp_path / "seeds", sync=False)
    desk = Desk(store)
    desk.follow(frontier)
    yield desk
    desk.close()
    store.close()
    close_shared_broker()


@pytest.fixture
def nobody(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The service takes calls and answers none."""
    for module in (seed_forms, look_up):
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.1)
    desk.away.set()
    return desk
