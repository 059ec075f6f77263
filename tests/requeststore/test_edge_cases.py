"""What is rare: settings that change under stored requests, and calls that come very late."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from apps.projects.models import Project
from apps.requeststore.engine.flags import EXPIRED, FAILED, NEW, PROCESSED
from apps.requeststore.models import ClosedSlice, NodeReport, ShardReport
from apps.requeststore.services import connections, intake
from apps.requeststore.services import upkeep as module
from apps.requeststore.services.closed_slices import at_ms
from apps.requeststore.services.reopen import reopen_requests
from apps.requeststore.services.store import BoundBiz, RequestStore
from apps.requeststore.services.upkeep import Upkeep
from apps.requeststore.stores.base import Finish
from tests.requeststore.factories import make_bizzes, pages, save_bizzes
from yardkit import failpoints

pytestmark = pytest.mark.django_db

HOUR = 3_600_000
TWO = {"epochs": [{"splits": 2, "nodes": ["default", "second"]}]}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_memory", module._Memory())
    monkeypatch.setattr(module, "REST", 0.0)
    monkeypatch.setattr(connections, "BEHIND_SECONDS", 0.0)


def begin(yard: RequestStore, **biz: Any) -> BoundBiz:
    project = make_bizzes(news=biz)
    yard.setup()
    return yard.biz(project.pk, "news")


def change(yard: RequestStore, bound: BoundBiz, **bizzes: dict[str, Any]) -> None:
    save_bizzes(Project.objects.get(pk=bound.project_id), **bizzes)
    yard.wake()
    yard.poll()


def keep(yard: RequestStore, now: int) -> Any:
    return Upkeep(yard).round(now)


def flags(yard: RequestStore, ids: list[int]) -> Counter[int]:
    return Counter(found.request.flag for each in ids if (found := yard.find(each)))


def books(bound: BoundBiz) -> Counter[int]:
    total = Counter[int]()
    for kind in (ShardReport, ClosedSlice):
        for row in kind.objects.filter(project_id=bound.project_id, biz=bound.name):
            total.update({int(flag): number for flag, number in row.by_flag.items()})
    return +total


@pytest.mark.covers("S4.22")
def test_a_call_that_is_repeated_after_its_time_stores_requests_that_live(
    yard: RequestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call has died after it had kept its ids; the books of its time are closed."""
    bound = begin(yard, ttl_seconds=3600)
    kept = dict[str, Any]()

    def die(notes: dict[str, Any]) -> None:
        kept.update(notes)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        intake.submit(bound, pages(3), by="rest", keep=die, request_store=yard)
    later = kept["ts"] + 2 * HOUR
    keep(yard, later)
    monkeypatch.setattr(intake, "database_now", lambda: at_ms(later))
    done = intake.submit(bound, pages(3), by="rest", kept=kept, request_store=yard)
    assert done.ids == [int(each) for each in kept["ids"]]
    keep(yard, later + 1000)
    assert flags(yard, done.ids) == {NEW: 3}
    assert books(bound) == {NEW: 3}
    soon = intake.submit(
        bound, pages(3), by="rest", kept={**kept, "ts": done.ts}, request_store=yard
    )
    assert soon.ts == done.ts


@pytest.mark.covers("S4.22")
def test_lost_entries_are_missed_while_fetchers_are_busy(yard: RequestStore) -> None:
    """What they hold counts as taken in the queue and in the store: neither hides a lost entry."""
    bound = begin(yard, **TWO, take_seconds=HOUR // 1000)
    now = yard.now()
    ids = yard.submit(bound, pages(4), by="tester", now=now)
    busy = yard.queue(bound).take(4, timeout=1.0)
    assert len(yard.take(bound, busy, owner="fetcher", now=now)) == len(ids)
    yard.submit(bound, pages(3), by="tester", now=now)
    lost = yard.queue(bound).take(3, timeout=1.0)
    assert len(lost) == 3
    yard.queue(bound).settle(lost)
    assert keep(yard, now + 700_000).forgotten == 3
    yard.queue(bound).settle(busy)


@pytest.mark.covers("S4.22")
def test_a_retired_biz_is_counted_though_one_of_its_nodes_is_gone(
    yard: RequestStore, request_nodes: dict[str, str]
) -> None:
    bound = begin(yard, **TWO, ttl_seconds=60, keep_seconds=3600)
    now = yard.now()
    ids = yard.submit(bound, pages(8), by="tester", now=now)
    del request_nodes["second"]
    change(yard, bound, other={})
    left = flags(yard, ids).total()
    assert 0 < left < 8
    keep(yard, now + 900_000)
    assert flags(yard, ids) == {EXPIRED: left}
    assert sum(row.expired for row in ClosedSlice.objects.all()) == left
    problems = dict(ShardReport.objects.values_list("node", "problem"))
    assert problems["default"] == ""
    assert "second" in problems["second"]


@pytest.mark.covers("S4.17", "S4.22")
def test_a_longer_time_to_live_does_not_open_closed_books(yard: RequestStore) -> None:
    bound = begin(yard, ttl_seconds=60, keep_seconds=24 * 3600)
    now = yard.now() - 2 * HOUR
    ids = yard.submit(bound, pages(2), by="tester", now=now)
    taken = yard.queue(bound).take(2, timeout=1.0)
    takes = yard.take(bound, taken, owner="fetcher", now=now)
    requests = [each.request for each in takes if each.request is not None]
    ends = [
        (each, Finish(each.id, each.tries, flag))
        for each, flag in zip(requests, (FAILED, PROCESSED), strict=True)
    ]
    yard.finish(bound, ends, owner="fetcher", now=now)
    yard.queue(bound).settle(taken)
    keep(yard, now + HOUR)
    assert ClosedSlice.objects.count() == 1
    change(yard, bound, news={"ttl_seconds": 24 * 3600})
    bound = yard.biz(bound.project_id, "news")
    assert reopen_requests(bound, actor=None, ids=ids, request_store=yard).reopened == 0
    assert flags(yard, ids) == {FAILED: 1, PROCESSED: 1}
    assert books(bound) == {FAILED: 1, PROCESSED: 1}


@pytest.mark.covers("S4.16", "S4.22")
def test_a_store_deletes_nothing_that_is_in_no_closed_book(
    yard: RequestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shorter time to live reaches a store that deletes by itself only after the books."""
    bound = begin(yard, ttl_seconds=24 * 3600, keep_seconds=3600)
    now = yard.now()
    yard.submit(bound, pages(2), by="tester", now=now - 20 * HOUR)
    keep(yard, now)
    asked = list[int]()
    node = yard.node("default")
    real = node.ensure

    def ensure(shard: Any, *, delete_after_seconds: int) -> None:
        asked.append(delete_after_seconds)
        real(shard, delete_after_seconds=delete_after_seconds)

    monkeypatch.setattr(node, "ensure", ensure)
    change(yard, bound, news={"ttl_seconds": 60, "keep_seconds": 3600})
    bound = yard.biz(bound.project_id, "news")
    yard.submit(bound, pages(1), by="tester", now=now)
    assert asked[-1] > 24 * 3600
    keep(yard, now)
    assert books(bound) == {EXPIRED: 2, NEW: 1}
    keep(yard, now)
    assert asked[-1] == 60 + 3600
    number = len(asked)
    yard.submit(bound, pages(1), by="tester", now=now)
    assert len(asked) == number


@pytest.mark.covers("S4.22")
def test_requests_that_are_stored_after_their_time_are_counted_once(yard: RequestStore) -> None:
    """Their producer was stopped between looking at the clock and storing."""
    bound = begin(yard, ttl_seconds=60, keep_seconds=3600)
    now = yard.now()
    yard.submit(bound, pages(2), by="tester", now=now)
    later = now + 900_000
    keep(yard, later)
    assert books(bound) == {EXPIRED: 2}
    # One into a slice that there is, one into a time that was found empty.
    yard.submit(bound, pages(1), by="tester", now=now)
    yard.submit(bound, pages(1), by="tester", now=now - 1_200_000)
    failpoints.configure({failpoints.SETTING: "requests.after_late=raise"})
    try:
        with pytest.raises(failpoints.FailpointError):
            keep(yard, later + 1000)
    finally:
        failpoints.configure({})
    for moment in (later + 2000, later + 3000, later + 3 * HOUR):
        keep(yard, moment)
        assert books(bound) == {EXPIRED: 4}
    assert sum(row.expired for row in ClosedSlice.objects.all()) == 4


@pytest.mark.covers("S4.16", "S4.22")
def test_what_mongodb_may_have_deleted_uncounted_is_said_for_a_week(
    yard: RequestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody ran upkeep for longer than requests are kept."""
    bound = begin(yard, ttl_seconds=60, keep_seconds=3600)
    now = yard.now()
    yard.submit(bound, pages(2), by="tester", now=now)
    keep(yard, now)
    assert not ShardReport.objects.exclude(problem="").exists()
    # As if this node were one that deletes by itself.
    monkeypatch.setattr(module, "report_node", lambda *given: None)
    NodeReport.objects.filter(name="default").update(kind="mongodb")
    back = now + 3 * HOUR
    for moment in (back, back + 10_000, back + 6 * 24 * HOUR):
        keep(yard, moment)
        problem = ShardReport.objects.get().problem
        assert "MongoDB may have deleted" in problem
    keep(yard, back + 9 * 24 * HOUR)
    assert ShardReport.objects.get().problem == ""
