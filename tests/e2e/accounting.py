"""The books of a run against each other, and against what the site has seen."""

from __future__ import annotations

from typing import Any

from tests.e2e.cluster import Cluster, Look
from tests.e2e.counting_site import CountingSite, Walk, walk


def reference(site: CountingSite, *, delay_seconds: float) -> Walk:
    """What a plain walk finds; from now on each page takes so long, and hits count from 0."""
    expected = walk(site.url)
    site.hits.clear()
    site.delay_seconds = delay_seconds
    return expected


def check_books(end: Look, *, redelivered: int = 0) -> None:
    """Every request is in exactly one place, every attempt and every batch item accounted for.

    Args:
        redelivered: so many may have come to a center twice, because its connection was lost.
    """
    books, center = end["books"], end["center"]
    assert books["total"] == books["success"] + books["failed"] + books["left"], end
    assert books["left"] == books["queued"] + books["in_flight"], end
    assert books["failed"] == len(end["failures"]), end
    assert books["sent"] <= books["total"], end
    given_up = sum(books[name] for name in ("skipped", "timed_out", "refused", "cancelled"))
    assert attempts_of(end) == books["returned"] + given_up + books["out"], end
    ended = sum(center[name] for name in ("dispatched", "skipped", "expired", "refused"))
    assert center["received"] == ended + center["held"], end
    # What never reached a center was lost with the broker; nothing comes from nowhere.
    assert center["received"] <= attempts_of(end) + redelivered, end
    # The pages' own words on it.
    assert books["balanced"], end
    assert center["balanced"], end


def attempts_of(end: Look) -> int:
    """How often the run has sent a request, first times and later ones."""
    books = end["books"]
    sent: int = books["sent"] + books["retried"]
    return sent


def figures(cluster: Cluster, run: int, expected: Walk, end: Look) -> dict[str, Any]:
    """What a test measures of a run: pages of the reference walk, those lost, those stored twice.

    A page that has failed with its reason is no lost one.
    """
    items = cluster.items(run)
    known = {*items, *(row["url"] for row in end["failures"])}
    wanted = expected.all
    return {"of": len(wanted), "lost": len(wanted - known), "twice": len(items) - len(set(items))}


def check_complete(
    cluster: Cluster,
    run: int,
    site: CountingSite,
    expected: Walk,
    *,
    again: int = 0,
    redelivered: int = 0,
    lost: bool = False,
) -> Look:
    """The run has ended with every page of the reference walk, each stored once; how it ended.

    ``figures`` of what it returns is for ``measured``.

    Args:
        again: so many downloads may have been made twice for one attempt, because an agent, or
            its connection, died between the download and its acknowledgement.
        redelivered: see ``check_books``.
        lost: requests were lost on their way to a center, or a center with what it had counted
            since its last report.
    """
    end = cluster.end_of(run)
    if not lost:
        # A center reports once a second, so its last word may come after the run's.
        cluster.until(
            lambda: cluster.look(run)["center"]["received"] >= attempts_of(end),
            "the center's account of every attempt",
        )
        end = cluster.look(run)
    end["figures"] = figures(cluster, run, expected, end)
    books = end["books"]
    assert end["state"] == "exited", (end, cluster.logs())
    check_books(end, redelivered=redelivered)
    assert books["left"] == books["out"] == 0, end
    assert books["total"] == books["sent"] == len(expected.all), end
    assert books["success"] == books["pages"] == len(expected.pages), end
    assert {row["url"] for row in end["failures"]} == expected.failed, end
    items = cluster.items(run)
    assert sorted(items) == sorted(expected.pages), "an item is missing or was stored twice"
    # The center asks for robots.txt, and that for itself.
    fetched = sum(site.hits.values()) - site.hits["/robots.txt"]
    # A command that is delivered to an agent again is answered again, and that is counted.
    explained = max(attempts_of(end), books["returned"] + books["duplicates"]) + again
    assert len(expected.all) <= fetched <= explained, (end, site.hits.most_common(5))
    return end
