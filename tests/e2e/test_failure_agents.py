"""Agents that die and come back: S1.49, on real servers."""

from __future__ import annotations

import time

import pytest

from tests.e2e.accounts import check_complete, reference
from tests.e2e.cluster import Cluster
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.rabbit_node import RabbitNode
from yardkit import topology
from yardkit.broker import connect

pytestmark = [pytest.mark.services, pytest.mark.fault, pytest.mark.timeout(150)]


@pytest.mark.covers("S1.49", "S1.38")
def test_an_agent_that_died_gets_no_more_work(cluster: Cluster, own_rabbit: RabbitNode) -> None:
    dead, living = cluster.agents(2)
    queue = topology.agent_commands(dead).name
    broker = connect(own_rabbit.url, name="test", timeout=20.0)
    try:
        with CountingSite(tree(200)) as site:
            expected = reference(site, delay_seconds=0.05)
            run = cluster.crawl(site.url)
            cluster.until(lambda: cluster.look(run)["books"]["success"] > 30, "some pages")
            cluster.kill(dead)
            died_at = time.monotonic()
            check_complete(cluster, run, site, expected)
        # Its last heartbeat is up to 11 s away from now.
        limit = died_at + topology.AGENT_ALIVE_SECONDS
        cluster.until(lambda: time.monotonic() > limit, "the end of its last heartbeat")
        waiting = broker.depth(queue).ready
        with CountingSite(tree(100)) as site:
            expected = reference(site, delay_seconds=0.0)
            run = cluster.crawl(site.url)
            end = check_complete(cluster, run, site, expected)
        assert end["allocated"] == [living]
        assert set(end["books"]["agents"]) == {living}
        assert broker.depth(queue).ready == waiting
    finally:
        broker.close()
