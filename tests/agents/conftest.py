"""What the tests of the center share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apps.jobs.models import Run
from apps.jobs.states import RunState
from tests.agents.center_harness import CenterHarness
from tests.jobs.factories import make_job, make_project, make_run
from yardkit.broker import connect


@pytest.fixture
def harness(sqlite_broker_url: str) -> Iterator[CenterHarness]:
    """A center on a broker of its own. Needs a database whose tests commit."""
    broker = connect(sqlite_broker_url, name="test")
    harness = CenterHarness(broker)
    yield harness
    harness.close()
    broker.close()


def running(allowed_networks: tuple[str, ...] = ("127.0.0.0/8",)) -> Run:
    """A run of a project with these opened networks."""
    project = make_project(allowed_networks=list(allowed_networks))
    return make_run(job=make_job(project=project), state=RunState.RUNNING)


@pytest.fixture
def run(transactional_db: None) -> Run:
    """A run that asks for agents; its project may reach this machine, so nothing is held back."""
    return running()
