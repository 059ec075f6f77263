"""A fetcher behind links to its queues and its databases that break and come back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.plugins.measurements import Measured
from tests.plugins.stores import lend_postgres_database
from tests.requeststore.daemon.fetcher_processes import Plant
from tests.requeststore.daemon.pages_site import Site
from tests.requeststore.faults.test_fetcher_kills import (
    BIZZES,
    SHORT,
    Producer,
    all_processed,
    check,
    processed,
)
from tests.requeststore.redis_own import OwnRedis
from tests.yardkit.broker_proxy import WAYS, Proxy, before, break_lines

pytestmark = [
    pytest.mark.fault,
    pytest.mark.services,
    pytest.mark.timeout(900),
    pytest.mark.long("SIGKILL, also of Redis"),
]

BROKEN_SECONDS = 12.0
REQUESTS = 600
LINKS = {"queues": ("REDIS_URL",), "databases": ("DATABASE_URL", "REQUESTS_URL")}


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[tuple[Plant, dict[str, Proxy]]]:
    """A plant whose fetcher alone is behind proxies, by the setting of each."""
    with ExitStack() as stack:
        server = OwnRedis(tmp_path)
        stack.callback(server.kill)
        database = stack.enter_context(lend_postgres_database())
        urls = {"REDIS_URL": server.url, "DATABASE_URL": database, "REQUESTS_URL": database}
        proxies = {name: stack.enter_context(before(url)) for name, url in urls.items()}
        plant = stack.enter_context(closing(Plant(tmp_path / "plant", **urls)))
        plant.save(**{biz: {**fields, **SHORT} for biz, fields in BIZZES.items()})
        plant.daemons.own["f1"] = {name: proxies[name].address(url) for name, url in urls.items()}
        yield plant, proxies


@pytest.mark.covers("S4.18", "S4.21", "S4.22")
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("how", WAYS)
def test_a_broken_link_costs_no_request_and_no_record(
    behind: tuple[Plant, dict[str, Proxy]], site: Site, link: str, how: str, measured: Measured
) -> None:
    plant, proxies = behind
    producer = Producer(plant, site)
    producer.submit_half(plant.clerk, REQUESTS)
    plant.start()
    plant.until(lambda: processed(plant) > 0, "it works", 120)
    producer.submit_half(plant.clerk, REQUESTS)
    break_lines([proxies[name] for name in LINKS[link]], how, BROKEN_SECONDS)
    began, before_it = time.monotonic(), processed(plant)
    producer.submit_half(plant.clerk, REQUESTS)
    plant.until(lambda: processed(plant) > before_it, "it goes on", 120)
    measured(back_s=time.monotonic() - began)
    plant.until(lambda: all_processed(plant, producer), "it processes all of them", 240)
    assert plant.daemons.processes["f1"].poll() is None
    plant.stop()
    check(plant, producer, measured)
