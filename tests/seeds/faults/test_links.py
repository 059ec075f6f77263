"""The seed service behind links to its broker and its databases that break and come back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial

import pytest

from tests.plugins.measurements import Measured
from tests.plugins.stores import lend_postgres_database, lend_rabbit_vhost
from tests.seeds.faults.crawl import Crawl, Running
from tests.seeds.faults.service_processes import DAEMON, SeedYard
from tests.yardkit.broker_proxy import WAYS, Proxy, before, break_lines

pytestmark = [
    pytest.mark.fault,
    pytest.mark.services,
    pytest.mark.timeout(900),
    pytest.mark.long("PostgreSQL that cuts its connections, and a service that stands still"),
]

SEEDS = 3000
# Longer than a service may stand still, and than a client waits for an answer.
BROKEN_SECONDS = 12.0
LINKS = {"broker": ("BROKER_URL",), "databases": ("DATABASE_URL", "SEEDS_URL")}


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SeedYard, dict[str, Proxy]]]:
    """A yard whose service alone is behind proxies, by the setting of each."""
    with ExitStack() as stack:
        urls = {
            "BROKER_URL": stack.enter_context(lend_rabbit_vhost()),
            "DATABASE_URL": stack.enter_context(lend_postgres_database()),
            "SEEDS_URL": stack.enter_context(lend_postgres_database()),
        }
        proxies = {name: stack.enter_context(before(url)) for name, url in urls.items()}
        yard = stack.enter_context(
            closing(
                SeedYard(
                    tmp_path_factory.mktemp("links"),
                    store_url=urls["SEEDS_URL"],
                    broker_url=urls["BROKER_URL"],
                    database=urls["DATABASE_URL"],
                )
            )
        )
        yard.daemons.own[DAEMON] = {name: proxies[name].address(url) for name, url in urls.items()}
        yard.start()
        yield yard, proxies


@pytest.mark.covers("S3.15", "S3.16")
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("how", WAYS)
def test_a_broken_link_costs_no_seed_and_no_lease(
    behind: tuple[SeedYard, dict[str, Proxy]], link: str, how: str, measured: Measured
) -> None:
    yard, proxies = behind
    crawl = Crawl(yard, yard.frontier())
    crawl.add(SEEDS)
    works = (partial(crawl.crawl, "one", 20), partial(crawl.crawl, "two", 20))
    with Running(*works, partial(crawl.add, 20)) as running:
        break_lines([proxies[name] for name in LINKS[link]], how, BROKEN_SECONDS)
        back_s = crawl.until_back(time.monotonic())
        running.check()
    yard.until(crawl.crawl_all, "every seed has ended")
    crawl.check(measured, back_s)
    assert crawl.repeats() == 0
    assert yard.books(crawl.frontier).expired == 0
    assert yard.daemons.processes[DAEMON].poll() is None, yard.logs()
