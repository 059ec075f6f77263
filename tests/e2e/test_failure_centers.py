"""Centers that die, freeze and come back: S1.46 and S1.48, on real servers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import redis

from tests.e2e.accounting import check_books, check_complete, reference
from tests.e2e.cluster import Cluster
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.rabbit_node import RabbitNode
from tests.plugins.measurements import Measured
from tests.plugins.stores import REDIS_OWNER_KEY
from yardkit import topology
from yardkit.broker import Broker, Outgoing, connect
from yardkit.protocol import (
    Allocate,
    AnyMessage,
    DownloadBatch,
    DownloadRequest,
    Heartbeat,
    RequestItem,
    encode,
    encode_request,
)

pytestmark = [pytest.mark.services, pytest.mark.fault, pytest.mark.timeout(150)]


def put(broker: Broker, queue: str, message: AnyMessage, ttl_seconds: float | None = None) -> None:
    outgoing = Outgoing(encode(message), key=queue, ttl_seconds=ttl_seconds)
    broker.publish([outgoing]).result(20)


# Requests a second.
HOST_RATE = 30.0


@pytest.fixture
def no_limit(cluster: Cluster) -> Iterator[None]:
    """Whatever a test has set is gone afterwards."""
    yield
    cluster.ask("limit_host", requests_per_second=0)


def wipe(server: redis.Redis) -> None:
    """Everything but the word that this database is lent to us."""
    lent = server.dump(REDIS_OWNER_KEY)
    server.flushdb()
    server.restore(REDIS_OWNER_KEY, 3_600_000, lent)


@pytest.mark.covers("S1.46", "S1.31", "S1.32")
def test_what_piled_up_while_the_center_was_away_is_judged_by_its_age(
    cluster: Cluster, own_rabbit: RabbitNode
) -> None:
    cluster.agents(1)
    with CountingSite(tree(60)) as site:
        expected = reference(site, delay_seconds=0.02)
        cluster.kill("center")
        # A run that starts without a center: what it asks for waits.
        run = cluster.crawl(site.url)
        token = cluster.ask("token", run=run)
        broker = connect(own_rabbit.url, name="test", timeout=20.0)
        try:
            control, requests = topology.CENTER_CONTROL.name, topology.CENTER_REQUESTS.name
            cluster.until(lambda: broker.depth(control).ready == 1, "the run's question")
            # Of the same run: one that is over 60 s old, as if the center had been away so long,
            # and an allocation that nobody waits for any more.
            request = encode_request(DownloadRequest(url=f"{site.url}stale.html"))
            item = RequestItem(900, 1, "127.0.0.1", "", request)
            stale = DownloadBatch(
                run=run,
                token=token,
                reply_to="nobody",
                items=[item] * 3,
                sent_at=time.time() - topology.DOWNLOAD_EXPIRES_SECONDS - 1,
            )
            put(broker, requests, stale)
            old = Allocate(
                run=run,
                token=token,
                reply_to="nobody-waits",
                sent_at=time.time() - topology.ALLOCATE_EXPIRES_SECONDS - 1,
            )
            put(broker, control, old)
            # A heartbeat from long ago says nothing of now.
            beat = Heartbeat(
                agent="ghost",
                name="ghost",
                boot="1",
                total_memory_bytes=1,
                free_memory_bytes=1,
                cpu_percent=0.0,
                downloaders=0,
                qps=0.0,
            )
            put(broker, topology.center_heartbeats("center").name, beat, ttl_seconds=0.1)
            # Whoever registers meanwhile is an agent, however long that waits.
            cluster.start_agent("agent-late")
            register = topology.CENTER_REGISTER.name
            cluster.until(lambda: broker.depth(register).ready == 1, "the late registration")
        finally:
            broker.close()
        cluster.start_daemon("center")
        cluster.until(lambda: cluster.is_registered("agent-late"), "the late agent")
        cluster.until(lambda: cluster.look(run)["center"]["expired"] == 3, "the stale ones")
        end = cluster.end_of(run)
    assert "ghost" not in cluster.ask("agents")
    assert "/stale.html" not in site.hits
    assert end["center"]["expired"] == 3
    # The three were none of the run's own.
    for name in ("received", "expired"):
        end["center"][name] -= 3
    check_books(end)
    assert sorted(cluster.items(run)) == sorted(expected.pages)


@pytest.mark.covers("S1.48")
def test_one_of_two_centers_killed_changes_nothing(cluster: Cluster, measured: Measured) -> None:
    cluster.start_daemon("center-2")
    cluster.daemons.until_logged("center-2", "is running")
    cluster.agents(2)
    with CountingSite(tree(250)) as site:
        expected = reference(site, delay_seconds=0.05)
        run = cluster.crawl(site.url)
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 50, "some pages")
        cluster.kill("center")
        back_s = cluster.seconds_to_new_pages(run)
        end = check_complete(cluster, run, site, expected, lost=True)
    measured(**end["figures"], back_s=back_s)
    assert end["books"]["failed"] == 0


@pytest.mark.covers("S1.48", "S1.45")
def test_one_of_two_centers_frozen_and_woken_answers_nothing_twice(
    cluster: Cluster, measured: Measured
) -> None:
    cluster.start_daemon("center-2")
    cluster.daemons.until_logged("center-2", "is running")
    cluster.agents(2)
    with CountingSite(tree(250)) as site:
        expected = reference(site, delay_seconds=0.05)
        run = cluster.crawl(site.url)
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 50, "some pages")
        with cluster.frozen("center-2"):
            before = cluster.look(run)["books"]
            # What the frozen one holds times out and goes to the other one.
            cluster.until(
                lambda: cluster.look(run)["books"]["retried"] > before["retried"], "a retry"
            )
            cluster.until(
                lambda: cluster.look(run)["books"]["success"] > before["success"], "pages"
            )
        end = check_complete(cluster, run, site, expected)
    measured(**end["figures"])
    assert end["books"]["failed"] == 0


@pytest.mark.covers("S1.48")
def test_two_centers_one_killed_and_redis_wiped_together_change_nothing(
    cluster: Cluster, redis_url: str, no_limit: None, measured: Measured
) -> None:
    cluster.start_daemon("center-2")
    cluster.daemons.until_logged("center-2", "is running")
    cluster.agents(2)
    # Centers share a host's limit, where it has one, by way of Redis.
    cluster.ask("limit_host", requests_per_second=HOST_RATE)
    with CountingSite(tree(250)) as site, redis.Redis.from_url(redis_url) as server:
        expected = reference(site, delay_seconds=0.05)
        run = cluster.crawl(site.url)
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 50, "some pages")
        # What both know of hosts, and all else that any daemon keeps there.
        cluster.until(lambda: server.dbsize() > 1, "something to lose")
        wipe(server)
        cluster.kill("center")
        wipe(server)
        back_s = cluster.seconds_to_new_pages(run)
        end = check_complete(cluster, run, site, expected, lost=True)
    measured(**end["figures"], back_s=back_s)
    assert end["books"]["failed"] == 0
