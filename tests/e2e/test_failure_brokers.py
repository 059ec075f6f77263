"""A broker that goes, comes back or takes nothing: S1.42 and S1.47, on a real RabbitMQ."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.accounting import check_books, check_complete, reference
from tests.e2e.cluster import Cluster, Look
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.rabbit_node import RabbitNode
from tests.plugins.measurements import Measured
from tests.yardkit.broker_proxy import Proxy

pytestmark = [pytest.mark.services, pytest.mark.fault, pytest.mark.timeout(240)]

# Which of the two comes first depends on what was on its way when it happened.
GIVEN_UP = r"^the broker (took no message|is gone: amqp://\S+ did not answer), tried 3 times"


@dataclass
class Outage:
    """What became of three runs while the broker was stopped and started again."""

    agents: dict[str, float]  # when each was last heard of, before the stop
    gone_at: float
    back_at: float
    back_s: float
    hurried: Look
    late: Look
    patient: Look
    cluster: Cluster


@pytest.fixture(scope="module")
def outage(lasting_cluster: Cluster, own_rabbit: RabbitNode) -> Iterator[Outage]:
    """One outage for all that is asked about it: a broker takes its time to stop and start."""
    cluster = lasting_cluster
    cluster.restore()
    names = cluster.agents(2)
    with CountingSite(tree(500)) as site, CountingSite(tree(500), delay_seconds=0.05) as other:
        expected = reference(site, delay_seconds=0.05)
        patient = cluster.crawl(site.url)
        hurried = cluster.crawl(other.url, "Hurried")
        for run in (patient, hurried):
            cluster.until(lambda run=run: cluster.look(run)["books"]["success"] > 30, "some pages")
        heard = {name: cluster.ask("agents")[name]["heard"] for name in names}
        own_rabbit.stop()
        gone_at = time.time()
        late = cluster.crawl(other.url, "Hurried")
        try:
            for run in (hurried, late):
                cluster.until(lambda run=run: cluster.look(run)["ended"], f"run {run} gives up")
            given_up = [cluster.look(run) for run in (hurried, late)]
            assert not cluster.look(patient)["ended"]
        finally:
            own_rabbit.start()
        back_at = time.time()
        back_s = cluster.seconds_to_new_pages(patient)
        end = check_complete(cluster, patient, site, expected, lost=True)
    yield Outage(heard, gone_at, back_at, back_s, *given_up, end, cluster)
    cluster.restore()


@pytest.mark.covers("S1.42")
def test_a_run_whose_requests_the_broker_does_not_take_ends_after_its_retries(
    outage: Outage,
) -> None:
    end = outage.hurried
    assert end["state"] == "failed", end
    assert re.search(GIVEN_UP, end["reason"]), end
    assert end["books"]["success"] > 30
    check_books(end)


@pytest.mark.covers("S1.42")
def test_a_run_that_cannot_subscribe_ends_after_its_retries(
    outage: Outage, measured: Measured
) -> None:
    end = outage.late
    assert end["state"] == "failed", end
    said = re.fullmatch(
        r"BROKER_URL: no RabbitMQ at 127\.0\.0\.1:\d+: Connection refused \(tried for (\d+) s\)",
        end["reason"],
    )
    assert said, end
    measured(note=f"one without patience ends after {said[1]} s")
    assert not end["allocated"]


@pytest.mark.covers("S1.42", "S1.47")
def test_a_run_with_patience_goes_on_when_the_broker_is_back(
    outage: Outage, measured: Measured
) -> None:
    # That every page was fetched and stored once is checked where the outage is made.
    measured(**outage.patient["figures"], back_s=outage.back_s)
    assert outage.patient["books"]["failed"] == 0
    assert outage.back_at > outage.gone_at


@pytest.mark.covers("S1.47", "S1.22")
def test_agents_subscribe_and_report_again_when_the_broker_is_back(
    outage: Outage, measured: Measured
) -> None:
    cluster = outage.cluster

    def all_heard() -> bool:
        agents = cluster.ask("agents")
        return all(agents[name]["heard"] > outage.back_at for name in outage.agents)

    cluster.until(all_heard, "heartbeats after the outage")
    for name in outage.agents:
        # The very processes from before: none was started anew.
        assert "serves" in cluster.daemons.log(name)
        assert cluster.daemons.processes[name].poll() is None
    with CountingSite(tree(30)) as site:
        expected = reference(site, delay_seconds=0.0)
        end = check_complete(cluster, cluster.crawl(site.url), site, expected)
    measured(**end["figures"])


@pytest.fixture
def proxy(own_rabbit: RabbitNode) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", own_rabbit.port) as proxy:
        yield proxy


@pytest.mark.covers("S1.42")
def test_a_run_that_cannot_ask_for_agents_ends_after_its_retries(
    cluster: Cluster, own_rabbit: RabbitNode, proxy: Proxy
) -> None:
    cluster.agents(1)
    cluster.restart("runner", BROKER_URL=own_rabbit.url_by(proxy.port))
    # The run connects and subscribes; what it publishes goes by a connection of its own.
    proxy.ban("(publishing)")
    run = cluster.crawl("http://127.0.0.1:9/", "Hurried")
    end = cluster.end_of(run)
    assert end["state"] == "failed", end
    assert re.search(GIVEN_UP, end["reason"]), end
    assert not end["allocated"]
    assert proxy.refused > 0


@pytest.mark.covers("S1.47", "S1.45")
def test_answers_the_broker_does_not_take_are_dropped_and_counted(
    cluster: Cluster, own_rabbit: RabbitNode, proxy: Proxy
) -> None:
    [agent] = cluster.agents(
        1, BROKER_URL=own_rabbit.url_by(proxy.port), AGENT_PUBLISH_ATTEMPTS="2"
    )
    with CountingSite(tree(120)) as site:
        expected = reference(site, delay_seconds=0.03)
        run = cluster.crawl(site.url)
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 20, "some pages")
        proxy.ban("download_results")
        cluster.until(lambda: "dropped after 2 attempts" in cluster.daemons.log(agent), "a drop")
        proxy.ban("")
        end = check_complete(cluster, run, site, expected)
    assert end["books"]["retried"] > 0
    status, _ = cluster.daemons.stop(agent, signal.SIGTERM)
    assert status == 0
    counted = re.search(r"exits: .*?(\d+) answers dropped", cluster.daemons.log(agent))
    assert counted is not None, cluster.daemons.log(agent)
    lines = re.findall(r"(\d+) answers for \S+: dropped", cluster.daemons.log(agent))
    assert int(counted[1]) == sum(int(number) for number in lines) > 0


@pytest.mark.covers("S1.47", "S1.35")
def test_a_confirmation_the_broker_does_not_take_is_dropped_and_the_run_says_so(
    cluster: Cluster, own_rabbit: RabbitNode, proxy: Proxy
) -> None:
    [agent] = cluster.agents(
        1, BROKER_URL=own_rabbit.url_by(proxy.port), AGENT_PUBLISH_ATTEMPTS="2"
    )
    proxy.ban("downloader_ready")
    run = cluster.crawl("http://127.0.0.1:9/", "Hurried")
    end = cluster.end_of(run)
    assert end["state"] == "failed", end
    assert end["reason"] == "none of 1 allocated agents confirmed within 4 s"
    cluster.until(lambda: f"downloader of run {run} for" in cluster.daemons.log(agent), "the drop")
    assert re.search(r"downloader of run \d+ for \S+: dropped", cluster.daemons.log(agent))
