"""Each line of the failure matrix of the downloads, S1.43 to S1.46, on real servers."""

from __future__ import annotations

import time

import pytest

from tests.e2e.accounting import check_books, check_complete, reference
from tests.e2e.cluster import Cluster
from tests.e2e.counting_site import CountingSite, tree

pytestmark = [pytest.mark.services, pytest.mark.fault, pytest.mark.timeout(150)]


@pytest.mark.covers("S1.43", "S1.51")
def test_a_page_that_never_answers_is_sent_again_and_fails_and_the_run_ends(
    cluster: Cluster,
) -> None:
    cluster.agents(1)
    with CountingSite(tree(40), silent=frozenset({"/silent.html"})) as site:
        expected = reference(site, delay_seconds=0.0)
        run = cluster.crawl(site.url, "SilentPage")
        end = cluster.end_of(run)
    assert end["state"] == "failed", end
    assert "1 of 42 requests were not answered by the platform" in end["reason"]
    check_books(end)
    books = end["books"]
    # Sent three times, as its spider says; the only agent merges the copies of a running download.
    assert site.hits["/silent.html"] == 1
    assert end["failures"] == [
        {"url": f"{site.url}silent.html", "reason": "no answer within 1.5 s, sent 3 times"}
    ]
    assert (books["failed"], books["left"]) == (1, 0)
    assert sorted(cluster.items(run)) == sorted(expected.pages)


@pytest.mark.covers("S1.44")
@pytest.mark.parametrize("gone", ["center", "agents"])
def test_a_run_that_nothing_comes_back_to_fails_and_says_so(cluster: Cluster, gone: str) -> None:
    agents = cluster.agents(2)
    window = 8
    with CountingSite(tree(3000), delay_seconds=0.02) as site:
        run = cluster.crawl(site.url, "NoAnswer", window=window)
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 20, "some pages")
        silent_at = time.monotonic()
        if gone == "center":
            cluster.process("center").suspend()
        else:
            for name in agents:
                cluster.kill(name)
        while not (look := cluster.look(run))["ended"]:
            books = look["books"]
            assert books["sent"] - books["returned"] <= window, look
            assert time.monotonic() - silent_at < 60, cluster.logs()
            time.sleep(0.05)
    if gone == "center":
        cluster.process("center").resume()
    end = cluster.end_of(run)
    assert time.monotonic() - silent_at > 3.0
    assert end["state"] == "failed", end
    assert end["reason"].startswith(f"no answer for 3 s while {window} requests are out"), end
    assert end["books"]["undone"] == end["books"]["left"] > 0
    # What was out when it gave up is not forgotten either.
    assert end["books"]["out"] + end["books"]["cancelled"] >= window
    assert end["books"]["retried"] >= window, "retries must not count against the window"
    check_books(end)


@pytest.mark.covers("S1.45")
def test_answers_that_come_too_late_are_counted_and_change_nothing(cluster: Cluster) -> None:
    agents = cluster.agents(1)
    with CountingSite(tree(150)) as site:
        expected = reference(site, delay_seconds=0.05)
        run = cluster.crawl(site.url, window=20)
        cluster.until(lambda: cluster.look(run)["books"]["success"] > 20, "some pages")
        with cluster.frozen(agents[0]):
            before = cluster.look(run)["books"]["retried"]
            cluster.until(
                lambda: cluster.look(run)["books"]["retried"] > before, "a request sent again"
            )
        end = check_complete(cluster, run, site, expected)
    # Everything that was out was downloaded for both of its attempts, and one answer was enough.
    assert end["books"]["duplicates"] > 0, end
    assert sum(site.hits.values()) > len(expected.pages)
