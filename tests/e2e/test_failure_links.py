"""Connections that break or are slow while everybody lives: to RabbitMQ, and to PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.e2e.accounting import check_complete, reference
from tests.e2e.cluster import Cluster
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.rabbit_node import RabbitNode
from tests.plugins.measurements import Measured
from tests.yardkit.broker_proxy import WAYS, Proxy, before, break_lines

pytestmark = [pytest.mark.services, pytest.mark.fault, pytest.mark.timeout(150)]

WINDOW = 10
CUTS = 3
# Longer than an agent may be silent, and shorter than a connection may be.
BLACKHOLE_SECONDS = 12.0
# So long on their way, and so many bytes a second: far away, at the other end of the world, and by
# way of a satellite.
SLOW = [(0.05, 100_000.0), (0.15, 20_000.0), (0.3, 20_000.0)]


@pytest.fixture
def proxy(own_rabbit: RabbitNode) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", own_rabbit.port) as proxy:
        yield proxy


@pytest.mark.covers("S1.46", "S1.47")
@pytest.mark.parametrize("whose", ["center", "agent", "run"])
def test_connections_that_are_reset_cost_no_page(
    cluster: Cluster, own_rabbit: RabbitNode, proxy: Proxy, whose: str, measured: Measured
) -> None:
    url = own_rabbit.url_by(proxy.port)
    cluster.agents(1, **({"BROKER_URL": url} if whose == "agent" else {}))
    name = {"center": "center", "run": "runner"}.get(whose)
    if name is not None:
        cluster.restart(name, BROKER_URL=url)
    with CountingSite(tree(200)) as site:
        expected = reference(site, delay_seconds=0.03)
        run = cluster.crawl(site.url, window=WINDOW)
        for _ in range(CUTS):
            done = cluster.look(run)["books"]["success"]
            cluster.until(lambda done=done: cluster.look(run)["books"]["success"] > done, "pages")
            assert not cluster.look(run)["ended"]
            proxy.cut()
        back_s = cluster.seconds_to_new_pages(run, WINDOW)
        # What was taken and not acknowledged when it was cut comes again, and is done again.
        again = CUTS * WINDOW
        end = check_complete(cluster, run, site, expected, again=again, redelivered=again)
    measured(**end["figures"], back_s=back_s)
    assert end["books"]["failed"] == 0


@pytest.mark.covers("S1.46")
def test_a_center_that_nothing_reaches_for_a_while_goes_on_afterwards(
    cluster: Cluster, own_rabbit: RabbitNode, proxy: Proxy, measured: Measured
) -> None:
    cluster.agents(2)
    cluster.restart("center", BROKER_URL=own_rabbit.url_by(proxy.port))
    with CountingSite(tree(200)) as site:
        expected = reference(site, delay_seconds=0.05)
        run = cluster.crawl(site.url)
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 30, "some pages")
        proxy.freeze(frozen=True)
        # The fault itself takes so long: the agents look dead, the connection still stands.
        time.sleep(BLACKHOLE_SECONDS)
        assert cluster.look(run)["books"]["left"] > 0
        proxy.freeze(frozen=False)
        back_s = cluster.seconds_to_new_pages(run)
        end = check_complete(cluster, run, site, expected)
    measured(**end["figures"], back_s=back_s)
    assert end["books"]["failed"] == 0


@pytest.mark.long("a center that nothing reaches for a while")
@pytest.mark.covers("S1.46")
@pytest.mark.parametrize(("delay_seconds", "bytes_per_second"), SLOW)
def test_slow_links_cost_time_and_no_page(
    cluster: Cluster,
    own_rabbit: RabbitNode,
    proxy: Proxy,
    delay_seconds: float,
    bytes_per_second: float,
    measured: Measured,
) -> None:
    url = own_rabbit.url_by(proxy.port)
    proxy.slow(delay_seconds, bytes_per_second)
    for name in ("center", "runner"):
        cluster.restart(name, BROKER_URL=url)
    cluster.agents(1, BROKER_URL=url)
    with CountingSite(tree(60)) as site:
        expected = reference(site, delay_seconds=0.0)
        began = time.monotonic()
        run = cluster.crawl(site.url, window=WINDOW)
        end = check_complete(cluster, run, site, expected)
    seconds = time.monotonic() - began
    told = f"{delay_seconds * 1000:g} ms each way: {len(expected.all)} pages in {seconds:.0f} s"
    measured(**end["figures"], note=told)
    assert end["books"]["failed"] == 0


@pytest.mark.timeout(600)
@pytest.mark.long("its connections to the database are ended")
@pytest.mark.covers("S1.46")
@pytest.mark.parametrize("setting", ["BROKER_URL", "DATABASE_URL"])
@pytest.mark.parametrize("how", WAYS)
def test_statistics_behind_a_broken_link_count_everything_once(
    cluster: Cluster, setting: str, how: str, measured: Measured
) -> None:
    cluster.agents(1)
    url = cluster.daemons.environment[setting]
    with before(url) as proxy, CountingSite(tree(400)) as site:
        cluster.restart("statistics", **{setting: proxy.address(url)})
        # So that the run outlasts the break.
        expected = reference(site, delay_seconds=0.5)
        run = cluster.crawl(site.url)
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 10, "some pages")
        break_lines([proxy], how, BLACKHOLE_SECONDS)
        counted, began = cluster.look(run)["books"]["success"], time.monotonic()
        cluster.until(lambda: cluster.look(run)["books"]["success"] > counted, "it counts")
        back_s = time.monotonic() - began
        end = check_complete(cluster, run, site, expected)
        assert cluster.daemons.processes["statistics"].poll() is None
        cluster.restart("statistics")
    measured(**end["figures"], back_s=back_s)
    assert end["books"]["failed"] == 0


@pytest.mark.covers("S1.46", "S1.48")
def test_a_database_that_drops_its_connections_costs_no_page(
    cluster: Cluster, measured: Measured
) -> None:
    cluster.agents(2)
    database = cluster.daemons.environment["DATABASE_URL"]
    with CountingSite(tree(200)) as site, psycopg.connect(database, autocommit=True) as own:
        expected = reference(site, delay_seconds=0.03)
        run = cluster.crawl(site.url)
        for wanted in (20, 60, 100):
            cluster.until(
                lambda wanted=wanted: cluster.look(run)["books"]["success"] > wanted, "pages"
            )
            own.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        back_s = cluster.seconds_to_new_pages(run)
        end = check_complete(cluster, run, site, expected)
    measured(**end["figures"], back_s=back_s)
    assert end["books"]["failed"] == 0
    for name in ("center", "runner", "statistics"):
        assert cluster.daemons.processes[name].poll() is None, cluster.daemons.log(name)
