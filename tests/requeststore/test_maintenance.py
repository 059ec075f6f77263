"""Upkeep: nothing is forgotten, what is late is tried again, what has ended is counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from apps.projects.models import Project
from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.engine.flags import EXPIRED, FAILED, NEW, PROCESSED, TAKEN
from apps.requeststore.models import ClosedSlice, NodeReport, QueueReport, ShardReport
from apps.requeststore.queues.base import TakenEntry
from apps.requeststore.services import upkeep as module
from apps.requeststore.services.closed_slices import at_ms, fold_slices
from apps.requeststore.services.store import BoundBiz, RequestStore, shared_request_store
from apps.requeststore.services.sweep import UpkeepResult
from apps.requeststore.services.upkeep import Upkeep, upkeep_once
from apps.requeststore.stores.base import EndCode, Finish, QueueEntry, StoredRequest
from apps.requeststore.tasks import upkeep
from crawlyard.settings.tasks import HOUSEKEEPING
from tests.requeststore.factories import make_bizzes, pages, save_bizzes
from yardkit import failpoints

pytestmark = pytest.mark.django_db

FOUR = {"epochs": [{"splits": 4, "nodes": ["default", "second"]}]}
HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory of other tests' shards, and none between rounds: every one counts."""
    monkeypatch.setattr(module, "_memory", module._Memory())
    monkeypatch.setattr(module, "REST", 0.0)


@pytest.fixture
def failing() -> Iterator[Callable[[str], None]]:
    """Sets failpoints; none is left behind."""
    yield lambda value: failpoints.configure({failpoints.SETTING: value})
    failpoints.configure({})


def begin(yard: RequestStore, **biz: Any) -> BoundBiz:
    project = make_bizzes(news=biz)
    yard.setup()
    return yard.biz(project.pk, "news")


def keep(yard: RequestStore, now: int) -> UpkeepResult:
    return Upkeep(yard).round(now)


def queued(yard: RequestStore, bound: BoundBiz) -> list[int]:
    found = list[TakenEntry]()
    while some := yard.queue(bound).take(1000, timeout=0.05):
        found += some
    yard.queue(bound).settle(found)
    return [each.entry.id for each in found]


def take(
    yard: RequestStore, bound: BoundBiz, ids: list[int], ts: int, now: int
) -> list[StoredRequest]:
    entries = [TakenEntry(QueueEntry(number, bound.name, ts), None) for number in ids]
    takes = yard.take(bound, entries, owner="fetcher 1", now=now)
    return [each.request for each in takes if each.request is not None]


def finish(
    yard: RequestStore, bound: BoundBiz, requests: list[StoredRequest], flag: int, now: int
) -> list[EndCode]:
    done = [(each, Finish(each.id, each.tries, flag)) for each in requests]
    return yard.finish(bound, done, owner="fetcher 1", now=now)


def flags(yard: RequestStore, ids: list[int]) -> Counter[int]:
    return Counter(found.request.flag for each in ids if (found := yard.find(each)))


def books(bound: BoundBiz) -> Counter[int]:
    """Live counts and closed slices together, as pages read them."""
    total = Counter[int]()
    rows = ShardReport.objects.filter(project_id=bound.project_id, biz=bound.name)
    until = {(row.node, row.collection): row.closed_until for row in rows}
    for row in rows:
        total.update({int(flag): number for flag, number in row.by_flag.items()})
    for each in ClosedSlice.objects.filter(project_id=bound.project_id, biz=bound.name):
        closed = until[each.node, each.collection]
        assert closed is not None
        assert each.start_at < closed
        total.update({int(flag): number for flag, number in each.by_flag.items()})
    return +total


@pytest.mark.covers("S4.23")
def test_what_was_stored_and_never_queued_is_queued(
    yard: RequestStore, failing: Callable[[str], None]
) -> None:
    bound = begin(yard, **FOUR)
    now = yard.now()
    failing("requests.after_insert=raise")
    ids = yard.reserve(20)
    with pytest.raises(failpoints.FailpointError):
        yard.submit(bound, pages(20), by="tester", now=now, ids=ids)
    failing("")
    assert keep(yard, now + 29_000).orphans == 0
    assert keep(yard, now + 31_000).orphans == 20
    assert sorted(queued(yard, bound)) == ids
    assert keep(yard, now + 32_000).orphans == 0
    assert sum(row.orphans for row in ShardReport.objects.all()) == 20


@pytest.mark.covers("S4.22")
def test_who_dies_with_requests_in_hand_loses_none(yard: RequestStore) -> None:
    bound = begin(yard, **FOUR, take_seconds=60, max_tries=2)
    now = yard.now()
    ids = yard.submit(bound, pages(8), by="tester", now=now)
    assert sorted(queued(yard, bound)) == ids
    take(yard, bound, ids, now, now)
    assert flags(yard, ids) == {TAKEN: 8}
    assert not keep(yard, now + 59_999).overdue
    assert keep(yard, now + 60_000).overdue == 8
    assert sorted(queued(yard, bound)) == ids
    (lucky, *others) = take(yard, bound, ids, now, now + 70_000)
    assert lucky.tries == 2
    finish(yard, bound, [lucky], PROCESSED, now + 71_000)
    swept = keep(yard, now + 200_000)
    assert (swept.overdue, swept.given_up) == (0, len(others))
    assert flags(yard, ids) == {PROCESSED: 1, FAILED: 7}
    assert queued(yard, bound) == []
    found = yard.find(others[0].id)
    assert found is not None
    assert b"overdue" in found.request.result


@pytest.mark.covers("S4.22")
def test_entries_that_a_queue_has_lost_are_queued_again(yard: RequestStore) -> None:
    bound = begin(yard, **FOUR, retry_seconds=1)
    now = yard.now()
    ids = yard.submit(bound, pages(12), by="tester", now=now)
    keep(yard, now + 1000)
    # They all wait, however long.
    assert keep(yard, now + HOUR).forgotten == 0
    assert yard.queue(bound).clear() == 12
    assert keep(yard, now + 300_000).forgotten == 0
    assert keep(yard, now + 700_000).forgotten == 12
    assert sorted(queued(yard, bound)) == ids
    # Taken from the queue and not yet in the store: not asked after again for ten minutes.
    assert keep(yard, now + 710_000).forgotten == 0


@pytest.mark.covers("S4.16", "S4.17", "S4.22")
def test_what_nobody_processed_in_time_is_counted_and_shown(yard: RequestStore) -> None:
    bound = begin(yard, **FOUR, ttl_seconds=3600, keep_seconds=3600)
    now = yard.now()
    ids = yard.submit(bound, pages(20), by="tester", now=now)
    first = take(yard, bound, ids[:8], now, now)
    finish(yard, bound, first[:5], PROCESSED, now)
    finish(yard, bound, first[5:6], FAILED, now)
    keep(yard, now + 1000)
    assert books(bound) == {NEW: 12, TAKEN: 2, PROCESSED: 5, FAILED: 1}
    assert not ClosedSlice.objects.exists()
    # The two whose owner never came back are new again, and expire with the others.
    assert keep(yard, now + HOUR + 1).expired == 14
    assert flags(yard, ids) == {EXPIRED: 14, PROCESSED: 5, FAILED: 1}
    late = finish(yard, bound, first[6:7], PROCESSED, now + HOUR + 2)
    assert late == [EndCode.LATE]
    # Closed when the last request that might lie in the span has expired, and a minute is over.
    keep(yard, now + HOUR + 59_000)
    assert not ClosedSlice.objects.exists()
    swept = keep(yard, now + HOUR + 661_000)
    assert swept.closed == 4
    assert {row.expired for row in ClosedSlice.objects.all()} <= {3, 4, 5}
    assert sum(row.processed for row in ClosedSlice.objects.all()) == 6
    assert books(bound) == {EXPIRED: 14, PROCESSED: 5, FAILED: 1}
    assert sum(sum(row.by_flag.values()) for row in ShardReport.objects.all()) == 0
    # Looked up until the end of their time, then gone; the books stay.
    assert len(flags(yard, ids)) == 3
    assert keep(yard, now + 2 * HOUR - 1000).deleted == 0
    assert keep(yard, now + 2 * HOUR + 1000).deleted == 20
    assert flags(yard, ids) == {}
    assert books(bound) == {EXPIRED: 14, PROCESSED: 5, FAILED: 1}


@pytest.mark.fault
@pytest.mark.covers("S4.22")
@pytest.mark.parametrize(
    "point",
    [
        "requests.after_overdue",
        "requests.after_requeue",
        "requests.after_expire",
        "requests.before_close",
        "requests.in_close",
        "requests.after_close",
        "requests.after_delete",
    ],
)
def test_cut_off_anywhere_each_request_is_counted_exactly_once(
    yard: RequestStore, failing: Callable[[str], None], point: str
) -> None:
    bound = begin(yard, **FOUR, ttl_seconds=3600, keep_seconds=3600, take_seconds=60)
    now = yard.now()
    expected = Counter[int]()
    everything = list[int]()
    for at in range(0, 2 * HOUR, HOUR // 2):
        ids = yard.submit(bound, pages(12), by="tester", now=now + at)
        everything += ids
        first = take(yard, bound, ids[:6], now + at, now + at)
        finish(yard, bound, first[:4], PROCESSED, now + at)
        expected += Counter({PROCESSED: 4, EXPIRED: 8})
    for time in range(now + HOUR // 2, now + 6 * HOUR, HOUR // 2):
        for hits in (1, 2):
            failing(f"{point}=raise@{hits}")
            try:
                keep(yard, time)
            except failpoints.FailpointError:
                continue
        failing("")
    keep(yard, now + 6 * HOUR)
    assert books(bound) == expected
    assert flags(yard, everything) == {}


@pytest.mark.covers("S4.22")
def test_two_workers_at_once_count_nothing_twice(
    yard: RequestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = begin(yard, **FOUR, ttl_seconds=60)
    now = yard.now()
    yard.submit(bound, pages(12), by="tester", now=now)
    later = now + 60_000 + 700_000
    other = RequestStore(name="another worker")
    other.setup()
    raced = list[UpkeepResult]()

    def meanwhile(name: str) -> None:
        if name == "requests.before_close" and not raced:
            raced.append(UpkeepResult())
            raced[0] = keep(other, later)

    monkeypatch.setattr("apps.requeststore.services.closed_slices.hit", meanwhile)
    mine = keep(yard, later)
    other.close()
    assert raced[0].closed == 4
    assert mine.closed == 0
    assert books(bound) == {EXPIRED: 12}


@pytest.mark.covers("S4.22")
def test_one_round_at_a_time(yard: RequestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(yard)
    other = RequestStore(name="another worker")
    other.setup()
    inner = list[UpkeepResult | None]()
    real = Upkeep.round

    def round_(self: Upkeep, now: int) -> UpkeepResult:
        inner.append(upkeep_once(other, now=now))
        return real(self, now)

    monkeypatch.setattr(Upkeep, "round", round_)
    assert upkeep_once(yard, now=yard.now()) is not None
    assert inner == [None]
    monkeypatch.undo()
    assert upkeep_once(other, now=yard.now()) is not None
    other.close()


@pytest.mark.covers("S4.26")
def test_reports_say_how_shards_queues_and_nodes_are(yard: RequestStore) -> None:
    bound = begin(yard, **FOUR, ttl_seconds=6 * 3600)
    now = yard.now()
    for hours in (5.99, 5.5, 3, 0):
        yard.submit(bound, pages(4), by="tester", now=now - int(hours * HOUR))
    keep(yard, now)
    rows = list(ShardReport.objects.order_by("pk"))
    total = Counter[str]()
    for row in rows:
        total.update(row.expiring)
        assert row.size_bytes > 0
        assert row.problem == ""
    assert total == {"300": 4, "3600": 8, "21600": 16, "86400": 16}
    oldest = [row.oldest_new_at for row in rows if row.oldest_new_at]
    assert min(oldest) == at_ms(now - int(5.99 * HOUR))
    queue = QueueReport.objects.get()
    assert (queue.name, queue.waiting, queue.problem) == (bound.queue_name, 16, "")
    assert sorted(NodeReport.objects.values_list("name", "problem")) == [
        ("default", ""),
        ("second", ""),
    ]


class _Away:
    """A node whose server does not answer."""

    def __getattr__(self, name: str) -> Any:
        def refuse(*_given: Any, **_more: Any) -> Any:
            raise RequestStoreUnavailable("the server is away")

        return refuse


@pytest.mark.covers("S4.22", "S4.26")
def test_a_node_that_is_away_holds_nobody_up_and_nothing_is_counted_too_early(
    yard: RequestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = begin(yard, **FOUR, ttl_seconds=60, keep_seconds=7200)
    now = yard.now()
    yard.submit(bound, pages(12), by="tester", now=now)
    later = now + 60_000 + 700_000
    with monkeypatch.context() as broken:
        real = yard._connections.node
        broken.setattr(
            yard._connections, "node", lambda name: _Away() if name == "second" else real(name)
        )
        swept = keep(yard, later)
        assert swept.expired == 6
        # The others wait for it, so that a request on its way between them is counted once.
        assert swept.closed == 0
        problems = NodeReport.objects.values_list("name", "problem")
        assert dict(problems) == {"default": "", "second": "the server is away"}
        since = NodeReport.objects.get(name="second").since_at
        rows = ShardReport.objects.filter(node="second")
        assert {row.problem for row in rows} == {"the server is away"}
        assert keep(yard, later + 10_000).closed == 0
        assert NodeReport.objects.get(name="second").since_at == since
        # Half of the time is over after which a store deletes: now the others are counted.
        assert keep(yard, later + HOUR).closed == 2
    swept = keep(yard, later + HOUR + 10_000)
    assert (swept.expired, swept.closed) == (6, 2)
    assert books(bound) == {EXPIRED: 12}
    assert not ShardReport.objects.exclude(problem="").exists()


@pytest.mark.covers("S4.14")
def test_what_a_biz_left_behind_is_still_found_counted_and_deleted(yard: RequestStore) -> None:
    bound = begin(yard, **FOUR, ttl_seconds=60, keep_seconds=3600)
    now = yard.now()
    ids = yard.submit(bound, pages(8), by="tester", now=now)
    save_bizzes(Project.objects.get(pk=bound.project_id), other={})
    yard.wake()
    yard.poll()
    assert [each.name for each in yard.bizzes()] == ["other"]
    (retired,) = yard.retired()
    assert (retired.name, retired.retired, retired.settings.ttl_seconds) == ("news", True, 60)
    assert flags(yard, ids) == {NEW: 8}
    assert keep(yard, now + 60_000 + 700_000).closed == 4
    assert keep(yard, now + 60_000 + 4 * HOUR).deleted == 8
    assert books(bound) == {EXPIRED: 8}


def test_a_node_that_is_configured_no_more_is_told(
    yard: RequestStore, request_nodes: dict[str, str]
) -> None:
    bound = begin(yard, **FOUR)
    now = yard.now()
    yard.submit(bound, pages(8), by="tester", now=now)
    project = Project.objects.get(pk=bound.project_id)
    save_bizzes(project, news={"epochs": [{"splits": 4}]})
    del request_nodes["second"]
    yard.wake()
    yard.poll()
    keep(yard, now + 1000)
    problems = ShardReport.objects.order_by("node").values_list("node", "problem").distinct()
    assert list(problems) == [
        ("default", ""),
        ("second", "REQUESTS_NODES has no node second any more"),
    ]


def test_shards_that_others_made_get_into_the_books(yard: RequestStore) -> None:
    bound = begin(yard, **FOUR)
    now = yard.now()
    yard.submit(bound, pages(8), by="tester", now=now)
    ShardReport.objects.all().delete()
    keep(yard, now + 1000)
    assert books(bound) == {NEW: 8}


@pytest.mark.slow("1 s")
def test_old_slices_become_days_and_the_sums_stay(yard: RequestStore) -> None:
    bound = begin(yard, **FOUR, ttl_seconds=60, keep_seconds=3600)
    now = yard.now()
    midnight = now - now % DAY
    for day in range(3):
        for hours in (2, 9, 20):
            at = midnight + day * DAY + hours * HOUR
            yard.submit(bound, pages(8), by="tester", now=at)
            keep(yard, at + HOUR)
    end = midnight + 3 * DAY + HOUR
    keep(yard, end)
    assert books(bound) == {EXPIRED: 72}
    # Of the first day, those of each shard are one by now.
    assert ClosedSlice.objects.count() == 6 * 4 + 4
    assert fold_slices(bound, at_ms(end) + timedelta(days=1)) == 4
    assert books(bound) == {EXPIRED: 72}
    assert sorted(ClosedSlice.objects.values_list("seconds", flat=True)) == (
        [600] * 12 + [24 * 3600] * 8
    )
    assert fold_slices(bound, at_ms(end) + timedelta(days=1)) == 0


@pytest.mark.covers("S4.23")
def test_a_worker_does_it_every_ten_seconds(request_nodes: dict[str, str]) -> None:
    entry = HOUSEKEEPING["housekeeping: requeststore.upkeep"]
    assert entry["schedule"] == 10.0
    project = make_bizzes(news={})
    yard = shared_request_store()
    now = yard.now()
    ids = yard.submit(yard.biz(project.pk, "news"), pages(3), by="web", now=now - 40_000)
    queue = yard.queue(yard.biz(project.pk, "news"))
    queue.clear()
    upkeep()
    assert ShardReport.objects.get().by_flag == {"0": 3}
    assert len(ids) == 3
    assert QueueReport.objects.get().waiting == 0


def test_a_late_round_goes_on_where_it_stopped(yard: RequestStore) -> None:
    project = make_bizzes(a={}, b={}, c={})
    yard.setup()
    done = list[str]()

    class Slow(Upkeep):
        def biz(self, bound: BoundBiz, now: int) -> UpkeepResult:
            done.append(bound.name)
            return UpkeepResult()

    for _ in range(4):
        Slow(yard, seconds=0.0).round(yard.now())
    assert done == ["a", "b", "c", "a"]
    assert project.pk
