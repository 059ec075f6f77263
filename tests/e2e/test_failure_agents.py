"""Agents that die and come back: S1.49, on real servers."""

from __future__ import annotations

import time

import pytest

from tests.e2e.accounting import check_books, check_complete, reference
from tests.e2e.cluster import Cluster
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.rabbit_node import RabbitNode
from tests.plugins.measurements import Measured
from yardkit import topology
from yardkit.broker import connect

pytestmark = [pytest.mark.services, pytest.mark.fault, pytest.mark.timeout(150)]

WINDOW = 10
# From the moment it serves: one download of the site, one answer, one report of the run.
SERVED_SECONDS = 2.0


def depth(node: RabbitNode, agent: str) -> int:
    """How many commands wait for an agent."""
    broker = connect(node.url, name="test", timeout=20.0)
    try:
        return broker.depth(topology.agent_commands(agent).name).ready
    finally:
        broker.close()


@pytest.mark.covers("S1.49", "S1.38")
def test_an_agent_that_died_gets_no_more_work(
    cluster: Cluster, own_rabbit: RabbitNode, measured: Measured
) -> None:
    dead, living = cluster.agents(2)
    with CountingSite(tree(200)) as site:
        expected = reference(site, delay_seconds=0.05)
        run = cluster.crawl(site.url)
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 30, "some pages")
        cluster.kill(dead)
        died_at = time.monotonic()
        end = check_complete(cluster, run, site, expected)
    measured(**end["figures"])
    # So long it may count as alive, by its last heartbeat.
    limit = died_at + topology.AGENT_ALIVE_SECONDS
    cluster.until(lambda: time.monotonic() > limit, "the end of its last heartbeat")
    waiting = depth(own_rabbit, dead)
    with CountingSite(tree(100)) as site:
        expected = reference(site, delay_seconds=0.0)
        run = cluster.crawl(site.url)
        end = check_complete(cluster, run, site, expected)
    measured(**end["figures"])
    assert end["allocated"] == [living]
    assert set(end["books"]["agents"]) == {living}
    assert depth(own_rabbit, dead) <= waiting, "the dead one was sent something"


@pytest.mark.covers("S1.49", "S1.31")
def test_a_restarted_agent_serves_its_runs_by_what_it_has_on_disk(
    cluster: Cluster, own_rabbit: RabbitNode, measured: Measured
) -> None:
    [agent] = cluster.agents(1)
    with CountingSite(tree(150)) as site:
        expected = reference(site, delay_seconds=0.3)
        run = cluster.crawl(site.url)
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 20, "some pages")
        cluster.kill(agent)
        # What the dead one had not acknowledged, and what is sent to it before that is known.
        cluster.until(lambda: depth(own_rabbit, agent) > 0, "requests that wait for the agent")
        # Nobody who could allocate it anew: all it knows of the run is in its file.
        with cluster.frozen("center"):
            before = cluster.look(run)["books"]["success"]
            cluster.start_agent(agent)
            cluster.daemons.until_logged(agent, "serves")
            serves_at = time.monotonic()
            cluster.until(
                lambda: cluster.look(run)["books"]["success"] > before, "an answer", SERVED_SECONDS
            )
            back_s = time.monotonic() - serves_at
            assert back_s < SERVED_SECONDS
            assert "no downloader" not in cluster.daemons.log(agent)
        end = check_complete(cluster, run, site, expected, again=WINDOW)
    measured(**end["figures"], back_s=back_s)
    assert end["books"]["failed"] == 0
    folder = cluster.daemons.folder / "data" / "agents"
    cluster.until(lambda: not [*folder.rglob(f"run-{run}.alloc")], "its file goes with the run")


@pytest.mark.covers("S1.49", "S1.36", "S1.44")
def test_a_chained_run_whose_only_agent_died_ends_and_says_why(cluster: Cluster) -> None:
    agents = cluster.agents(2)
    with CountingSite(tree(2000), delay_seconds=0.02) as site:
        run = cluster.crawl(site.url, "NoAnswer", policy="chained", agents=1)
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 20, "some pages")
        [chosen] = cluster.look(run)["allocated"]
        assert chosen in agents
        cluster.kill(chosen)
        end = cluster.end_of(run)
    assert end["state"] == "failed", end
    assert end["reason"].startswith("no answer for 3 s while "), end
    assert "are the center and the run's agents alive?" in end["reason"]
    # The other agent lives, but what was found on a page belongs to the agent that fetched it.
    assert set(end["books"]["agents"]) == {chosen}
    assert end["books"]["left"] > 0
    check_books(end)
