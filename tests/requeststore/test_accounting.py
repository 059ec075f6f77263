"""The books of a biz as pages read them: they balance at every moment, also between two reports."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.requeststore.engine.flags import PROCESSED
from apps.requeststore.models import ClosedSlice, ShardReport
from apps.requeststore.queries.accounting import BizAccounting, standings
from apps.requeststore.services import closed_slices
from apps.requeststore.services import upkeep as module
from apps.requeststore.services.store import BoundBiz, RequestStore
from apps.requeststore.services.upkeep import Upkeep
from apps.requeststore.stores.base import Finish
from tests.requeststore.factories import make_bizzes, pages

pytestmark = pytest.mark.django_db
FOUR = {"epochs": [{"splits": 4, "nodes": ["default", "second"]}]}


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_memory", module._Memory())
    monkeypatch.setattr(module, "REST", 0.0)


def begin(yard: RequestStore, **biz: Any) -> BoundBiz:
    project = make_bizzes(news=biz)
    yard.setup()
    return yard.biz(project.pk, "news")


def standing(bound: BoundBiz, *, by_flag: bool = False) -> BizAccounting:
    return standings([bound.project_id], by_flag=by_flag)[bound.project_id, "news"]


@pytest.mark.covers("S4.6", "S4.22")
def test_stored_is_new_taken_processed_and_expired(yard: RequestStore) -> None:
    bound = begin(yard, **FOUR, ttl_seconds=3600, flags={"7": "gone"})
    now = yard.now()
    yard.submit(bound, pages(20), by="tester", now=now)
    taken = yard.queue(bound).take(12, timeout=1.0)
    takes = yard.take(bound, taken, owner="one", now=now)
    requests = [each.request for each in takes if each.request is not None]
    ends = [
        (each, Finish(each.id, each.tries, flag))
        for each, flag in zip(requests, [1] * 6 + [7] * 2 + [2], strict=False)
    ]
    yard.finish(bound, ends, owner="one", now=now)
    yard.queue(bound).settle(taken)
    Upkeep(yard).round(now + 1000)
    books = standing(bound)
    assert (books.stored, books.new, books.taken, books.processed) == (20, 8, 3, 9)
    assert books.ended == {1: 6, 2: 1, 7: 2}
    assert books.expiring["3600"] == 11
    assert books.balanced
    for later in (3_600_001, 4_300_000, 100_000_000):
        Upkeep(yard).round(now + later)
        books = standing(bound)
        assert (books.stored, books.new, books.taken) == (20, 0, 0)
        assert (books.processed, books.expired) == (9, 11)
        assert books.balanced
    assert books.kept == 0


@pytest.mark.covers("S4.22")
@pytest.mark.parametrize("by_flag", [False, True])
def test_a_span_closed_while_the_books_are_read_is_in_them_once(
    yard: RequestStore, monkeypatch: pytest.MonkeyPatch, by_flag: bool
) -> None:
    """The reports are read first, the slices after them: by then there may be more of these."""
    bound = begin(yard, **FOUR, ttl_seconds=60)
    now = yard.now()
    yard.submit(bound, pages(8), by="tester", now=now)
    Upkeep(yard).round(now + 61_000)
    real = ClosedSlice.objects.filter

    def closed_meanwhile(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(ClosedSlice.objects, "filter", real)
        assert Upkeep(yard).round(now + 800_000).closed == 4
        return real(*given, **named)

    monkeypatch.setattr(ClosedSlice.objects, "filter", closed_meanwhile)
    assert standing(bound, by_flag=by_flag).stored == 8
    assert standing(bound, by_flag=by_flag).stored == 8


@pytest.mark.slow("3 s")
@pytest.mark.covers("S4.22")
def test_what_the_books_say_is_what_was_given_to_the_store(
    yard: RequestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a count of our own, hour by hour, also after everything was deleted and folded."""
    monkeypatch.setattr(closed_slices, "FOLD_AFTER", timedelta(hours=1))
    bound = begin(yard, **FOUR, ttl_seconds=7200, keep_seconds=3600)
    start = yard.now()
    stored = processed = 0
    for hour in range(30):
        now = start + hour * 3_600_000
        stored += len(yard.submit(bound, pages(5 + hour % 7), by="tester", now=now))
        taken = yard.queue(bound).take(4, timeout=1.0)
        takes = yard.take(bound, taken, owner="one", now=now)
        ends = [
            (each.request, Finish(each.request.id, each.request.tries, PROCESSED))
            for each in takes
            if each.request is not None
        ]
        yard.finish(bound, ends, owner="one", now=now)
        yard.queue(bound).settle(taken)
        processed += len(ends)
        Upkeep(yard).round(now + 1000)
        books = standing(bound)
        assert (books.stored, books.processed) == (stored, processed)
        assert books.new + books.expired == stored - processed
    Upkeep(yard).round(start + 60 * 3_600_000)
    books = standing(bound)
    assert (books.stored, books.processed) == (stored, processed)
    assert books.expired == stored - processed
    assert books.kept == 0
    assert not any(row.by_flag for row in ShardReport.objects.all())
    assert ClosedSlice.objects.filter(seconds=86_400).exists()
