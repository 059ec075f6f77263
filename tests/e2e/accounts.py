"""The books of a run against each other, and against what the site has seen."""

from __future__ import annotations

from tests.e2e.cluster import Cluster, Look
from tests.e2e.counting_site import CountingSite, Walk, walk


def reference(site: CountingSite, *, delay_seconds: float) -> Walk:
    """What a plain walk finds; from now on each page takes so long, and hits count from 0."""
    expected = walk(site.url)
    site.hits.clear()
    site.delay_seconds = delay_seconds
    return expected


def check_books(end: Look) -> None:
    """Every request is in exactly one place, every attempt and every batch item accounted for."""
    books, center = end["books"], end["center"]
    assert books["balanced"], end
    assert books["total"] == books["success"] + books["failed"] + books["left"], end
    assert books["failed"] == len(end["failures"]), end
    attempts = books["sent"] + books["retried"]
    assert books["sent"] <= books["total"], end
    assert attempts >= books["returned"] + books["skipped"], end
    assert center["received"] == center["dispatched"] + center["skipped"] + center["expired"], end
    # What never reached a center was lost with the broker; nothing comes from nowhere.
    assert center["received"] <= attempts, end


def check_complete(
    cluster: Cluster, run: int, site: CountingSite, expected: Walk, *, again: int = 0
) -> Look:
    """The run has ended with every page of the reference walk, each stored once; how it ended.

    Args:
        again: so many downloads may have been made twice for one attempt, because an agent died
            between the download and its acknowledgement.
    """
    end = cluster.end_of(run)
    books = end["books"]
    assert end["state"] == "exited", (end, cluster.logs())
    check_books(end)
    assert books["left"] == 0, end
    assert books["total"] == books["sent"] == len(expected.all), end
    assert books["success"] == books["pages"] == len(expected.pages), end
    assert {row["url"] for row in end["failures"]} == expected.failed, end
    items = cluster.items(run)
    assert sorted(items) == sorted(expected.pages), "an item is missing or was stored twice"
    fetched = sum(site.hits.values())
    assert fetched >= len(expected.all)
    assert fetched <= books["sent"] + books["retried"] + again, (end, site.hits.most_common(5))
    return end
