"""The log store is away for a while: lines wait in the broker, and all are there afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.joblogs import elastic_server
from tests.joblogs.elastic_double import ElasticDouble
from tests.joblogs.faults.ingester_processes import FULL, IngesterHarness
from tests.plugins.measurements import Measured
from tests.plugins.stores import lend_postgres_database, lend_rabbit_vhost
from tests.yardkit.broker_proxy import Proxy

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]
AWAY_SECONDS = 60.0 if FULL else 5.0
# They wait in the queue all the same.
LINES = 60_000 if FULL else 20_000
Switch = Callable[[], None]


def _elastic(stack: ExitStack, folder: Path) -> tuple[dict[str, Any], Switch, Switch]:
    double = ElasticDouble()
    stack.callback(double.stop)
    broker = f"sqlite:///{folder / 'broker.sqlite3'}"
    return {"BROKER_URL": broker, "LOGS_URL": double.url}, double.stop, double.start


def _postgres(stack: ExitStack, _folder: Path) -> tuple[dict[str, Any], Switch, Switch]:
    database = stack.enter_context(lend_postgres_database())
    parts = urlsplit(database)
    proxy = stack.enter_context(Proxy(parts.hostname or "127.0.0.1", parts.port or 5432))
    through = parts._replace(netloc=f"{parts.username}@127.0.0.1:{proxy.port}").geturl()
    broker = stack.enter_context(lend_rabbit_vhost())
    urls = {"DATABASE_URL": database, "BROKER_URL": broker, "LOGS_URL": through}
    return urls, proxy.shut, proxy.open


@pytest.fixture
def lines() -> int:
    return LINES


@pytest.fixture(
    params=[
        pytest.param(_elastic, id="elastic", marks=elastic_server.WANTED),
        pytest.param(_postgres, id="postgres", marks=pytest.mark.services),
    ]
)
def broken(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[IngesterHarness, Switch, Switch]]:
    with ExitStack() as stack:
        urls, shut, open_ = request.param(stack, tmp_path)
        yield (
            stack.enter_context(closing(IngesterHarness(tmp_path / "logs", LINES, **urls))),
            shut,
            open_,
        )


@pytest.mark.covers("S1.18")
def test_lines_wait_while_the_store_is_away(
    broken: tuple[IngesterHarness, Switch, Switch], measured: Measured
) -> None:
    harness, shut, open_ = broken
    harness.start("ingester")
    harness.daemons.until_logged("ingester", "is running")
    shut()
    harness.emit()
    harness.daemons.until_logged("ingester", "log store fails and is retried")
    # Nothing is in anybody's hands.
    harness.until(lambda: harness.waiting() >= 40)
    until = time.monotonic() + AWAY_SECONDS
    while time.monotonic() < until:
        assert harness.daemons.processes["ingester"].poll() is None
        time.sleep(0.1)
    status = harness.daemons.manage("run_log_ingester", "--status").stdout
    assert "log store:" in status
    open_()
    back = harness.until_stored(0)
    harness.until_settled()
    measured(**harness.check_books(), back_s=back)
    log = harness.daemons.log("ingester")
    assert log.count("log store fails and is retried") == 1
    assert log.count("log store works again") == 1
    assert "Traceback" not in log
