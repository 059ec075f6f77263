"""Fixtures of the router's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.access.factories import make_project
from tests.routing.daemon.routers import Router


@pytest.fixture
def router(db: None, tmp_path: Path) -> Iterator[Router]:
    """A router of a new project, without rules."""
    made = Router(make_project(), tmp_path)
    yield made
    made.close()
