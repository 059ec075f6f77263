"""Scrapy runs whose agent, center or process is killed, or whose broker is away for a while."""

from __future__ import annotations

import pytest

from tests.e2e.accounting import check_books, check_complete, reference
from tests.e2e.cluster import Cluster
from tests.e2e.counting_site import CountingSite, Walk, tree
from tests.e2e.rabbit_node import RabbitNode
from tests.plugins.long_tests import FULL_FAULTS
from tests.plugins.measurements import Measured

pytestmark = [pytest.mark.services, pytest.mark.fault, pytest.mark.timeout(300)]

PAGES = 1500 if FULL_FAULTS else 150
# Requests that may be at an agent at once: the project's CONCURRENT_REQUESTS_PER_DOMAIN.
WINDOW = 10
SPIDER = "pages"


def begin(cluster: Cluster, site: CountingSite) -> tuple[int, Walk]:
    """Start a Scrapy run and wait for some pages; the run, and what a plain walk finds."""
    expected = reference(site, delay_seconds=0.05)
    run = cluster.crawl(site.url, SPIDER)
    cluster.until(lambda: cluster.look(run)["books"]["success"] > 20, "some pages")
    return run, expected


@pytest.mark.covers("SC.1", "S1.49")
def test_a_killed_agent_costs_no_page_of_a_scrapy_run(cluster: Cluster, measured: Measured) -> None:
    dead, _ = cluster.agents(2)
    with CountingSite(tree(PAGES)) as site:
        run, expected = begin(cluster, site)
        cluster.kill(dead)
        back_s = cluster.seconds_to_new_pages(run, WINDOW)
        end = check_complete(cluster, run, site, expected, again=WINDOW)
    assert end["books"]["failed"] == 0
    measured(**end["figures"], back_s=back_s)


@pytest.mark.covers("SC.1", "S1.46")
def test_a_killed_center_costs_no_page_of_a_scrapy_run(
    cluster: Cluster, measured: Measured
) -> None:
    cluster.agents(2)
    with CountingSite(tree(PAGES)) as site:
        run, expected = begin(cluster, site)
        cluster.kill("center")
        cluster.start_daemon("center")
        back_s = cluster.seconds_to_new_pages(run, WINDOW)
        end = check_complete(cluster, run, site, expected, again=WINDOW, lost=True)
    assert end["books"]["failed"] == 0
    measured(**end["figures"], back_s=back_s)


@pytest.mark.covers("SC.1", "S1.42")
def test_a_broker_that_is_away_costs_no_page_and_no_item_of_a_scrapy_run(
    cluster: Cluster, own_rabbit: RabbitNode, measured: Measured
) -> None:
    cluster.agents(2)
    with CountingSite(tree(PAGES)) as site:
        run, expected = begin(cluster, site)
        own_rabbit.stop()
        try:
            assert not cluster.look(run)["ended"]
        finally:
            own_rabbit.start()
        back_s = cluster.seconds_to_new_pages(run, WINDOW)
        end = check_complete(
            cluster, run, site, expected, again=WINDOW, redelivered=WINDOW, lost=True
        )
    assert end["books"]["failed"] == 0
    measured(**end["figures"], back_s=back_s)


@pytest.mark.covers("SC.1", "SC.6")
def test_a_killed_scrapy_run_fails_with_its_accounting_and_a_new_one_completes(
    cluster: Cluster, measured: Measured
) -> None:
    cluster.agents(2)
    with CountingSite(tree(PAGES)) as site:
        run, expected = begin(cluster, site)
        cluster.spider(run).kill()
        end = cluster.end_of(run)
        assert end["state"] == "failed", end
        # Its last report is up to a second old: the center has received more since.
        check_books(end, redelivered=PAGES)
        assert end["books"]["left"] > 0
        # A request counts as succeeded only after its item was confirmed.
        items = cluster.items(run)
        assert len(items) == len(set(items)) >= end["books"]["success"]
        assert set(items) <= expected.pages
        expected = reference(site, delay_seconds=0.0)
        again = cluster.crawl(site.url, SPIDER)
        whole = check_complete(cluster, again, site, expected)
    measured(**whole["figures"])
