"""Log ingesters that the fault tests kill, on each pair of broker and log store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.joblogs import elastic_server
from tests.joblogs.faults import ingester_processes as module
from tests.joblogs.faults.ingester_processes import KINDS, LINES, IngesterHarness, sent_of_a_run
from tests.plugins.stores import lend_postgres_database, lend_rabbit_vhost


@pytest.fixture
def lines(request: pytest.FixtureRequest) -> int:
    """How many all runs write."""
    # What stands in for Elasticsearch here is slow.
    return LINES // 2 if "elastic" in request.node.name else LINES


@pytest.fixture(autouse=True)
def sender_limit(monkeypatch: pytest.MonkeyPatch, lines: int) -> None:
    """So many lines of a run are sent."""
    monkeypatch.setattr("apps.jobs.runners.log_shipper.MAX_LINES", sent_of_a_run(lines))


@pytest.fixture(params=KINDS)
def harness(
    request: pytest.FixtureRequest, tmp_path: Path, lines: int
) -> Iterator[IngesterHarness]:
    """With the lines of all runs in its queue."""
    environment: dict[str, Any] = {"BROKER_URL": f"sqlite:///{tmp_path / 'broker.sqlite3'}"}
    with ExitStack() as stack:
        if request.param == "services":
            database = stack.enter_context(lend_postgres_database())
            broker = stack.enter_context(lend_rabbit_vhost())
            environment = {"DATABASE_URL": database, "BROKER_URL": broker, "LOGS_URL": database}
        if request.param == "elastic":
            environment["LOGS_URL"] = stack.enter_context(elastic_server.lend_url())
        made = stack.enter_context(
            closing(module.IngesterHarness(tmp_path / "logs", lines, **environment))
        )
        made.emit()
        yield made
