"""A RabbitMQ that lives, but takes nothing, or has lost its queues: S1.42, on a real one."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from tests.e2e.accounting import check_complete, reference
from tests.e2e.cluster import Cluster
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.rabbit_node import RabbitNode
from tests.plugins.measurements import Measured
from yardkit import topology
from yardkit.broker import connect

pytestmark = [pytest.mark.services, pytest.mark.fault, pytest.mark.timeout(240)]

WINDOW = 10
# The fault itself: longer than a center takes an agent without a word for alive.
ALARM_SECONDS = 12.0


@pytest.mark.covers("S1.42")
def test_a_memory_alarm_holds_a_run_up_and_costs_no_page(
    cluster: Cluster, own_rabbit: RabbitNode, measured: Measured
) -> None:
    cluster.agents(2)
    # Pages for some ten seconds: the operator's command takes one or two to begin.
    with CountingSite(tree(600)) as site:
        expected = reference(site, delay_seconds=0.2)
        run = cluster.crawl(site.url, window=WINDOW)
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 30, "some pages")
        own_rabbit.control("set_vm_memory_high_watermark", "absolute", "1MB")
        try:
            time.sleep(ALARM_SECONDS)
            # Nothing passes, and nobody gives up.
            held = cluster.look(run)
            assert not held["ended"]
            assert held["books"]["left"] > 0
        finally:
            own_rabbit.control("set_vm_memory_high_watermark", "absolute", "1GB")
        back_s = cluster.seconds_to_new_pages(run, WINDOW, 30)
        # What timed out on its way to the center came there too, and was fetched once more.
        end = check_complete(cluster, run, site, expected, lost=True)
    measured(**end["figures"], back_s=back_s)
    assert end["books"]["failed"] == 0
    for name in ("center", "runner", "statistics"):
        assert cluster.daemons.processes[name].poll() is None, cluster.daemons.log(name)


@pytest.mark.covers("S1.42")
@pytest.mark.parametrize("whose", ["center", "agent"])
def test_a_queue_that_somebody_deletes_under_a_run_is_made_again(
    cluster: Cluster, own_rabbit: RabbitNode, whose: str, measured: Measured
) -> None:
    [agent] = cluster.agents(1)
    queue = topology.CENTER_REQUESTS if whose == "center" else topology.agent_commands(agent)
    with (
        CountingSite(tree(150)) as site,
        closing(connect(own_rabbit.url, name="test", timeout=20.0)) as broker,
    ):
        expected = reference(site, delay_seconds=0.05)
        run = cluster.crawl(site.url, window=WINDOW)
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 30, "some pages")
        # With what it holds: that times out and is sent again.
        broker.delete(queue.name)
        back_s = cluster.seconds_to_new_pages(run, WINDOW, 30)
        end = check_complete(cluster, run, site, expected, again=WINDOW, lost=True)
    measured(**end["figures"], back_s=back_s)
    assert end["books"]["failed"] == 0
