"""The yard on embedded nodes and an embedded queue: store, queue, hand out, end, find."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from apps.requeststore.engine.entity import Entity, decode_entity
from apps.requeststore.engine.errors import RequestStoreUnavailable, SubmitInterrupted
from apps.requeststore.engine.flags import FAILED, NEW, PROCESSED, TAKEN
from apps.requeststore.errors import BadRequests
from apps.requeststore.models import ShardReport
from apps.requeststore.services.store import RequestStore
from apps.requeststore.stores.base import (
    EndCode,
    GiveBack,
    HistoryStepKind,
    QueueEntry,
    Take,
    TakeCode,
)
from tests.requeststore.factories import pages
from tests.requeststore.store_steps import FOUR, OWNER, begin, entries, finished, from_queue, taken

pytestmark = pytest.mark.django_db


@pytest.mark.covers("S4.1", "S4.11", "S4.12", "S4.13", "S4.19")
def test_requests_are_stored_by_their_split_and_queued_in_their_order(yard: RequestStore) -> None:
    bound = begin(yard, **FOUR)
    now = yard.now()
    ids = yard.submit(bound, pages(40), by="tester", now=now)
    assert ids == sorted(set(ids))
    assert [each.entry for each in from_queue(yard, bound)] == [
        QueueEntry(number, "news", now) for number in ids
    ]
    for place in bound.places:
        node = yard.node(place.node)
        split = int(place.shard.collection[-3:])
        mine = [number for number in ids if number % 4 == split]
        assert len(mine) == 10
        for number, request in zip(mine, node.find(place.shard, mine), strict=True):
            assert request is not None
            assert (request.biz, request.ts, request.flag) == ("news", now, NEW)
            assert [step.kind for step in request.steps] == [
                HistoryStepKind.STORED,
                HistoryStepKind.QUEUED,
            ]
            assert decode_entity(request.data).url == f"https://example.com/{ids.index(number)}"
    assert ShardReport.objects.count() == 4


@pytest.mark.covers("S4.20", "S4.6")
def test_what_is_taken_is_finished_with_its_flag(yard: RequestStore) -> None:
    bound = begin(yard, **FOUR, flags={"7": "gone"})
    ids = yard.submit(bound, pages(9), by="tester", now=yard.now())
    requests = taken(yard, bound)
    assert [each.id for each in requests] == ids
    for part, flag in ((requests[:4], PROCESSED), (requests[4:8], 7), (requests[8:], FAILED)):
        codes = yard.finish(bound, finished(part, flag), owner=OWNER, now=yard.now())
        assert set(codes) == {EndCode.DONE}
    flags = [found.request.flag for number in ids if (found := yard.find(number))]
    assert flags == [1, 1, 1, 1, 7, 7, 7, 7, 2]
    again = yard.finish(bound, finished(requests[:1], PROCESSED), owner=OWNER, now=yard.now())
    assert again == [EndCode.REPEATED]
    other = yard.finish(bound, finished(requests[:1], PROCESSED), owner="other", now=yard.now())
    assert other == [EndCode.LATE]


@pytest.mark.covers("S4.20", "S4.22")
def test_entries_that_are_none_of_ours_get_a_code_each(yard: RequestStore) -> None:
    bound = begin(yard, **FOUR)
    now = yard.now()
    one, two, three = yard.submit(bound, pages(3), by="tester", now=now)
    (done,) = [each for each in taken(yard, bound) if each.id == two]
    yard.finish(bound, finished([done], PROCESSED), owner=OWNER, now=now)
    fresh = yard.submit(bound, pages(1), by="tester", now=now)[0]
    assert entries(
        yard,
        bound,
        QueueEntry(one, "news", now),
        QueueEntry(two, "news", now),
        QueueEntry(fresh, "news", now + 1),
        QueueEntry(fresh, "other", now),
        QueueEntry(12345, "news", now),
        QueueEntry(fresh, "news", now),
        QueueEntry(fresh, "news", now),
    ) == [
        TakeCode.BUSY,
        TakeCode.DONE,
        TakeCode.WRONG_TS,
        TakeCode.UNKNOWN,
        TakeCode.UNKNOWN,
        TakeCode.TAKEN,
        TakeCode.BUSY,
    ]
    assert three


@pytest.mark.covers("S4.17")
def test_an_expired_request_is_handed_out_to_nobody(yard: RequestStore) -> None:
    bound = begin(yard, ttl_seconds=60)
    old = yard.now() - 61_000
    (number,) = yard.submit(bound, pages(1), by="tester", now=old)
    assert entries(yard, bound, QueueEntry(number, "news", old)) == [TakeCode.EXPIRED]


@pytest.mark.covers("S4.17")
def test_entries_of_requests_that_are_deleted_are_expired_and_not_strange(
    yard: RequestStore,
) -> None:
    """A queue with a long backlog has them by the million."""
    bound = begin(yard, **FOUR, ttl_seconds=60, keep_seconds=3600)
    now = yard.now()
    assert entries(
        yard,
        bound,
        QueueEntry(4, "news", now - 60_001),
        QueueEntry(5, "news", now - 3_700_000),
        QueueEntry(6, "news", now - 59_000),
        QueueEntry(7, "other", 5),
    ) == [TakeCode.EXPIRED, TakeCode.EXPIRED, TakeCode.UNKNOWN, TakeCode.UNKNOWN]


def test_what_is_given_back_is_queued_when_its_time_has_come(yard: RequestStore) -> None:
    bound = begin(yard)
    now = yard.now()
    yard.submit(bound, pages(2), by="tester", now=now)
    first, second = taken(yard, bound)
    back = [
        (first, GiveBack(first.id, first.tries, "503", now + 3_600_000)),
        (second, GiveBack(second.id, second.tries, "again")),
    ]
    assert yard.give_back(bound, back, owner=OWNER, now=now) == [EndCode.DONE] * 2
    assert [each.entry.id for each in from_queue(yard, bound)] == [second.id]
    found = yard.find(first.id)
    assert found is not None
    assert found.request.flag == NEW
    # Not in its queue, and no orphan either: nobody queues it before its time.
    assert found.request.queued_at == now
    assert yard.queue(bound).stats().waiting == 0
    yard.close()
    assert [each.entry.id for each in from_queue(yard, bound)] == [first.id]


@pytest.mark.parametrize(
    ("entity", "field"),
    [
        (Entity(url=""), "url"),
        (Entity(url="ftp://example.com/"), "url"),
        (Entity(url="https://example.com/a b"), "url"),
        (Entity(url="https://exa\ud800mple.com/"), "url"),
        (Entity(url="https://[::1/"), "url"),
        (Entity(url="https://example.com/" + "x" * 8000), "url"),
        (Entity(url="https://example.com/", method="get\r\n"), "method"),
        (Entity(url="https://example.com/", headers={"X-A": "1\r\nX-B: 2"}), "headers"),
        (Entity(url="https://example.com/", headers={"X A": "1"}), "headers"),
        (Entity(url="https://example.com/", rule="nobody"), "rule"),
        (Entity(url="https://example.com/", meta={"x": object()}), "meta"),
        (Entity(url="https://example.com/", body=b"x" * (16 * 1024 * 1024)), "body"),
    ],
)
def test_one_bad_request_and_none_is_stored(yard: RequestStore, entity: Entity, field: str) -> None:
    bound = begin(yard)
    with pytest.raises(BadRequests) as caught:
        yard.submit(bound, [*pages(2), entity], by="tester", now=yard.now())
    assert list(caught.value.fields) == [f"requests[2].{field}"]
    assert yard.page(bound) == []
    assert not ShardReport.objects.exists()


def test_too_many_at_once_and_odd_priorities_are_refused(yard: RequestStore) -> None:
    bound = begin(yard)
    with pytest.raises(BadRequests):
        yard.submit(bound, pages(10_001), by="tester", now=yard.now())
    with pytest.raises(BadRequests):
        yard.submit(bound, pages(1), by="tester", now=yard.now(), priority=10)
    with pytest.raises(ValueError, match="different ids"):
        yard.submit(bound, pages(2), by="tester", now=yard.now(), ids=[5, 5])
    assert yard.submit(bound, [], by="tester", now=yard.now()) == []


class _Away:
    """A node or queue whose server is away, as far as ``methods`` are concerned."""

    def __init__(self, real: Any, *methods: str) -> None:
        self._real = real
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        if name in self._methods:
            return self._refuse
        return getattr(self._real, name)

    def _refuse(self, *_given: Any, **_more: Any) -> Any:
        raise RequestStoreUnavailable("the server is away")


@pytest.mark.covers("S4.23")
def test_a_submission_that_was_cut_off_is_completed_by_its_ids(
    yard: RequestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = begin(yard, **FOUR)
    with monkeypatch.context() as broken:
        real = yard._connections.node
        broken.setattr(
            yard._connections,
            "node",
            lambda name: _Away(real(name), "insert") if name == "second" else real(name),
        )
        with pytest.raises(SubmitInterrupted) as caught:
            yard.submit(bound, pages(20), by="tester", now=yard.now())
    ids = caught.value.ids
    assert 0 < len(yard.page(bound)) < 20
    assert yard.queue(bound).stats().waiting == 0
    for _ in range(2):
        # An hour later, so by then it would even be another ts.
        again = yard.submit(bound, pages(20), by="tester", now=yard.now() + 3_600_000, ids=ids)
        assert again == ids
        assert sorted(found.request.id for found in yard.page(bound)) == ids
        assert yard.queue(bound).stats().waiting == 20
    assert sorted(each.id for each in taken(yard, bound, now=yard.now() + 3_600_001)) == ids


@pytest.mark.covers("S4.23")
def test_requests_are_accepted_while_the_queue_is_away(
    yard: RequestStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bound = begin(yard)
    with monkeypatch.context() as broken:
        real = yard._connections.queue
        broken.setattr(yard._connections, "queue", lambda biz: _Away(real(biz), "push"))
        with caplog.at_level(logging.WARNING):
            ids = yard.submit(bound, pages(3), by="tester", now=yard.now())
    assert "3 requests are stored" in caplog.text
    place = bound.places[0]
    orphans = yard.node(place.node).orphans(place.shard, before=yard.now(), cutoff=0, limit=10)
    assert [each.id for each in orphans] == ids


@pytest.mark.covers("S4.22")
def test_entries_of_a_node_that_is_away_stay_for_later(
    yard: RequestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = begin(yard, **FOUR)
    now = yard.now()
    ids = yard.submit(bound, pages(8), by="tester", now=now)
    found = from_queue(yard, bound)
    takes: list[Take]
    with monkeypatch.context() as broken:
        real = yard._connections.node
        broken.setattr(
            yard._connections,
            "node",
            lambda name: (
                _Away(real(name), "take", "find", "finish") if name == "second" else real(name)
            ),
        )
        takes = yard.take(bound, found, owner=OWNER, now=now)
        assert [take.code for take in takes] == [
            TakeCode.AWAY if number % 2 else TakeCode.TAKEN for number in ids
        ]
        for number in ids:
            if number % 2:
                with pytest.raises(RequestStoreUnavailable):
                    yard.find(number)
            else:
                assert yard.find(number) is not None
    left = [each for each, take in zip(found, takes, strict=True) if take.code is TakeCode.AWAY]
    takes += yard.take(bound, left, owner=OWNER, now=now)
    requests = [take.request for take in takes if take.request is not None]
    assert len(requests) == 8
    with monkeypatch.context() as broken:
        broken.setattr(
            yard._connections,
            "node",
            lambda name: _Away(real(name), "finish") if name == "second" else real(name),
        )
        with pytest.raises(RequestStoreUnavailable):
            yard.finish(bound, finished(requests, PROCESSED), owner=OWNER, now=now)
    codes = yard.finish(bound, finished(requests, PROCESSED), owner=OWNER, now=now)
    # The node that answered had stored its half.
    assert codes == [EndCode.DONE if one.id % 2 else EndCode.REPEATED for one in requests]


def test_a_page_is_merged_over_all_shards(yard: RequestStore) -> None:
    bound = begin(yard, **FOUR)
    start = yard.now()
    ids = [
        number
        for at in range(10)
        for number in yard.submit(bound, pages(5), by="tester", now=start + at)
    ]
    found = list[int]()
    after: tuple[int, int] | None = None
    while batch := yard.page(bound, after=after, limit=7):
        assert all(each.request.data == b"" for each in batch)
        found += [each.request.id for each in batch]
        after = (batch[-1].request.ts, batch[-1].request.id)
    assert found == sorted(ids, reverse=True)
    some = yard.page(bound, since=start + 3, until=start + 5, flag=NEW)
    assert len(some) == 10
    assert yard.page(bound, flag=TAKEN) == []


def test_a_biz_of_one_project_is_none_of_another(yard: RequestStore) -> None:
    bound = begin(yard)
    (number,) = yard.submit(bound, pages(1), by="tester", now=yard.now())
    assert yard.find(number, bound.project_id + 1) is None
    assert yard.find(number, bound.project_id, "other") is None
    assert yard.find(number, bound.project_id) is not None
