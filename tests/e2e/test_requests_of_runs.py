"""Requests of runs with whole processes on the embedded stores: rows and retries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.accounting import reference
from tests.e2e.cluster import Cluster
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.demo_process import free_port

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("requests")
    place = f"127.0.0.1:{free_port()}"
    cluster = Cluster(folder, OBJECTS_LISTEN=place, OBJECTS_PUBLIC_URL=f"http://{place}")
    try:
        cluster.start()
        cluster.daemons.start("objects", "run_objects")
        yield cluster
    finally:
        cluster.end()


@pytest.fixture
def cluster(lasting: Cluster) -> Cluster:
    lasting.restore()
    return lasting


def requests_of(cluster: Cluster, run: int) -> dict[str, Any]:
    """What is stored of a run's requests, when everything has come."""

    def complete() -> dict[str, Any] | None:
        cluster.items(run)
        found: dict[str, Any] = cluster.ask("requests", run=run)
        is_over = not found["accounting"]["in_flight"] and not found["pages"]["waiting"]
        return found if is_over else None

    found: dict[str, Any] = cluster.until(complete, f"the requests of run {run}")
    return found


@pytest.mark.covers("OB.3", "OB.4")
def test_failed_requests_are_made_again_by_a_linked_run(cluster: Cluster) -> None:
    cluster.agents(1)
    with CountingSite(tree(20, broken=3)) as site:
        expected = reference(site, delay_seconds=0.0)
        first = cluster.crawl(site.url)
        end = cluster.end_of(first)
        assert end["books"]["failed"] == len(expected.failed) == 3
        found = requests_of(cluster, first)
        assert sorted(url for url, outcome in found["rows"] if outcome == "failed") == sorted(
            expected.failed
        )
        assert len(found["rows"]) == len(expected.all)
        for number in range(3):
            site.pages[f"/missing-{number}.html"] = "<html>now</html>"
        site.hits.clear()
        again = cluster.ask("retry", run=first)
        end = cluster.end_of(again)
        assert (end["state"], end["books"]["failed"]) == ("exited", 0), (end, cluster.logs())
        assert sorted(cluster.items(again)) == sorted(expected.failed)
        del site.hits["/robots.txt"]
        assert site.hits == {f"/missing-{number}.html": 1 for number in range(3)}
        retried = requests_of(cluster, again)
    assert (retried["of"], retried["job"]) == (first, found["job"])
    # One dataset has the items of both.
    assert len(cluster.items(first)) + len(cluster.items(again)) == len(expected.all)
