"""Dataset writers that the fault tests kill, on each pair of broker and database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.datasets.faults.writer_processes import KINDS, WriterProcesses
from tests.plugins.stores import lend_postgres_database, lend_rabbit_vhost


@pytest.fixture(params=KINDS)
def writers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WriterProcesses]:
    """With the items of all runs in its queue."""
    environment = {"BROKER_URL": f"sqlite:///{tmp_path / 'broker.sqlite3'}"}
    with ExitStack() as stack:
        if request.param == "services":
            environment = {
                "DATABASE_URL": stack.enter_context(lend_postgres_database()),
                "BROKER_URL": stack.enter_context(lend_rabbit_vhost()),
            }
        made = stack.enter_context(closing(WriterProcesses(tmp_path / "writers", **environment)))
        made.send()
        yield made
