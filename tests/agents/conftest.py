"""What the tests of the center share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apps.jobs.models import Run
from apps.jobs.states import RunState
from tests.agents.yard import Yard
from tests.jobs.factories import make_run
from yardkit.broker import connect


@pytest.fixture
def yard(sqlite_broker_url: str) -> Iterator[Yard]:
    """A center on a broker of its own. Needs a database whose tests commit."""
    broker = connect(sqlite_broker_url, name="test")
    yard = Yard(broker)
    yield yard
    yard.center.teardown()
    broker.close()


@pytest.fixture
def run(transactional_db: None) -> Run:
    """A run that asks for agents."""
    return make_run(state=RunState.RUNNING)
