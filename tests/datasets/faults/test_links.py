"""A writer behind links to its broker, database and object store that break and come back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.datasets.faults.writer_processes import WriterProcesses
from tests.plugins.measurements import Measured
from tests.plugins.s3_server import Bucket
from tests.plugins.stores import lend_postgres_database, lend_rabbit_vhost
from tests.yardkit.broker_proxy import WAYS, Proxy, before, break_lines

pytestmark = [pytest.mark.fault, pytest.mark.services, pytest.mark.timeout(900)]

WRITER = "writer"
BROKEN_SECONDS = 8.0
ITEMS = 8_000
LINKS = ("broker", "database", "store")


def cases() -> Iterator[Any]:
    """Each link, broken in each way."""
    for link in LINKS:
        for how in WAYS:
            in_short = how == "refused"
            marks = [] if in_short else [pytest.mark.long("a link that is refused")]
            yield pytest.param(link, how, marks=marks)


@pytest.fixture
def behind(tmp_path: Path, s3_bucket: Bucket) -> Iterator[tuple[WriterProcesses, dict[str, Proxy]]]:
    """Yield writers that alone are behind proxies."""
    with ExitStack() as stack:
        broker = stack.enter_context(lend_rabbit_vhost())
        database = stack.enter_context(lend_postgres_database())
        endpoint = urlsplit(s3_bucket.endpoint)
        proxies = {
            "broker": stack.enter_context(before(broker)),
            "database": stack.enter_context(before(database)),
            "store": stack.enter_context(Proxy(str(endpoint.hostname), endpoint.port or 80)),
        }
        environment = {
            "BROKER_URL": broker,
            "DATABASE_URL": database,
            "OBJECTS_URL": s3_bucket.url,
            "OBJECTS_ACCESS_KEY": s3_bucket.access_key,
            "OBJECTS_SECRET_KEY": s3_bucket.secret_key,
        }
        writers = stack.enter_context(
            closing(WriterProcesses(tmp_path / "writers", ITEMS, **environment))
        )
        writers.daemons.own[WRITER] = {
            "BROKER_URL": proxies["broker"].address(broker),
            "DATABASE_URL": proxies["database"].address(database),
            "OBJECTS_URL": s3_bucket.through(f"http://127.0.0.1:{proxies['store'].port}").url,
        }
        yield writers, proxies


@pytest.mark.covers("DS.1", "DS.2")
@pytest.mark.parametrize(("link", "how"), list(cases()))
def test_a_broken_link_costs_no_item(
    behind: tuple[WriterProcesses, dict[str, Proxy]], link: str, how: str, measured: Measured
) -> None:
    writers, proxies = behind
    writers.start(WRITER)
    writers.daemons.until_logged(WRITER, "is running")
    # The runs send while it is broken.
    breaking = threading.Thread(target=break_lines, args=([proxies[link]], how, BROKEN_SECONDS))
    breaking.start()
    writers.send()
    breaking.join()
    writers.until_settled()
    measured(**writers.check_accounts())
    assert "Traceback" not in writers.daemons.log(WRITER)
