"""Re-balancing on real stores: every id is found at every moment, nothing is lost or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.projects.models import Project
from apps.requeststore.engine.flags import MOVING, NEW, PROCESSED, TAKEN
from apps.requeststore.engine.placement import ShardPlace
from apps.requeststore.errors import (
    EpochNotStarted,
    NoSuchBiz,
    NothingToRebalance,
    RebalanceEnded,
    RebalanceRunning,
)
from apps.requeststore.models import Rebalance
from apps.requeststore.queues.base import TakenEntry
from apps.requeststore.services import rebalances
from apps.requeststore.services.rebalance_plan import cursor_of
from apps.requeststore.services.rebalance_preview import preview
from apps.requeststore.services.rebalances import (
    cancel_rebalance,
    start_rebalance,
    sweep_rebalances,
    work_on_rebalance,
)
from apps.requeststore.services.store import BoundBiz, RequestStore, shared_request_store
from apps.requeststore.states import RebalanceState
from apps.requeststore.stores.base import Finish, QueueEntry, Shard, StoredRequest
from apps.requeststore.stores.sqlite import SqliteNode
from tests.access.factories import make_project
from tests.requeststore.factories import make_bizzes, pages, save_bizzes
from yardkit.failpoints import FailpointError

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("request_nodes")]

FOUR = {"since": 0, "splits": 4}


def sixteen(since: int) -> dict[str, Any]:
    return {"since": since, "splits": 16, "nodes": ["default", "second"]}


class Store:
    """A biz whose older requests lie in four splits, and whose newest epoch has sixteen."""

    def __init__(self, number: int = 200) -> None:
        self.project: Project = make_bizzes(news={"epochs": [FOUR]})
        self.yard: RequestStore = shared_request_store()
        self.now = self.yard.now()
        self.ids = self.submit(number, at=self.now - 60_000)
        self.change(epochs=[FOUR, sixteen(self.now - 30_000)])

    @property
    def biz(self) -> BoundBiz:
        return self.yard.biz(self.project.pk, "news")

    def change(self, **fields: Any) -> None:
        """Another version of its settings."""
        save_bizzes(self.project, news=fields)
        self.yard.wake()
        self.yard.poll()

    def submit(self, number: int, at: int | None = None) -> list[int]:
        return self.yard.submit(self.biz, pages(number), by="test", now=at or self.now)

    def start(self) -> Rebalance:
        return start_rebalance(project_id=self.project.pk, biz="news", actor_label="test")

    def take(self, ids: list[int], at: int) -> list[Any]:
        """As a fetcher does, with what stood in the queue."""
        old = set(self.ids)
        entries = [
            QueueEntry(number, "news", self.now - 60_000 if number in old else self.now)
            for number in ids
        ]
        taken = [TakenEntry(entry, None) for entry in entries]
        answers = self.yard.take(self.biz, taken, owner="fetcher", now=at)
        return [each.request for each in answers if each.request is not None]

    def counts(self) -> Counter[int]:
        """By flag, over every shard."""
        found: Counter[int] = Counter()
        for place in self.biz.places:
            found.update(self.yard.node(place.node).count(place.shard).by_flag)
        return found

    def all_found(self, ids: list[int]) -> bool:
        return all(self.yard.find(number, self.project.pk) is not None for number in ids)

    def misplaced(self, ids: list[int]) -> list[int]:
        """Those that the newest epoch does not find in its own place."""
        epoch = self.biz.settings.epochs[-1]
        wrong = []
        for number in ids:
            place = self.biz.spread.place(number, epoch.since)
            if self.yard.node(place.node).find(place.shard, [number]) == [None]:
                wrong.append(number)
        return wrong


@pytest.fixture
def store(request_nodes: dict[str, str]) -> Store:
    return Store()


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalances, "MOST_TOGETHER", 20)


def work(row: Rebalance, told: Callable[[Rebalance], None] | None = None) -> Rebalance:
    """To its end, as workers do."""
    for _ in range(200):
        state = work_on_rebalance(row.pk, seconds=0, told=told)
        row.refresh_from_db()
        if state != RebalanceState.RUNNING:
            return row
    raise AssertionError(row.cursor)


@pytest.mark.slow("1 s")
@pytest.mark.covers("S4.14")
def test_the_dry_run_tells_what_would_be_moved(store: Store) -> None:
    wrong = store.misplaced(store.ids)
    assert len(wrong) > 100
    found = preview(store.biz, store.yard)
    assert (found.requests, found.would_move, found.is_exact) == (200, len(wrong), True)
    assert found.before is not None
    assert (found.before.splits, found.epoch.splits, len(found.lines)) == (4, 16, 4)
    assert found.seconds is None
    assert store.misplaced(store.ids) == wrong
    work(store.start())
    after = preview(store.biz, store.yard)
    assert (after.would_move, after.is_exact) == (0, True)
    assert after.seconds is not None


@pytest.mark.slow("10 s")
@pytest.mark.covers("S4.14")
def test_from_4_to_16_splits_while_producers_submit_and_a_fetcher_works(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = store.take(store.ids[:10], store.now)
    assert len(held) == 10
    ids = list(store.ids)
    wrong = len(store.misplaced(ids))
    looked = Counter[str]()

    def hit(name: str) -> None:
        # In the middle of a batch, too.
        if name.startswith("requeststore.move"):
            looked[name] += 1
            assert store.all_found(ids)

    monkeypatch.setattr("yardkit.failpoints.hit", hit)

    def told(row: Rebalance) -> None:
        looked["at"] += 1
        # Others go on meanwhile, and miss nothing.
        ids.extend(store.submit(3))
        assert store.all_found(ids)
        counts = store.counts()
        # A batch is in both places for a moment, but not between two steps.
        assert (counts.total(), counts[MOVING], counts[TAKEN]) == (len(ids), 0, 10)

    row = store.start()
    rounds = 0
    while rounds < 100:
        rounds += 1
        work_on_rebalance(row.pk, seconds=5, told=told)
        row.refresh_from_db()
        if len(cursor_of(row).later) and cursor_of(row).at == 4 and not cursor_of(row).batch:
            break
    # All are moved but those in somebody's hands, which it waits for.
    assert row.state == RebalanceState.RUNNING
    assert looked["at"] > 10
    assert looked["requeststore.move.received"] > 5
    later = [number for _at, number in cursor_of(row).later]
    assert set(later) <= {one.id for one in held}
    assert set(store.misplaced(ids)) == set(later)
    ends = [(one, Finish(one.id, one.tries, PROCESSED)) for one in held]
    store.yard.finish(store.biz, ends, owner="fetcher", now=store.now)
    row = work(row)
    assert (row.state, row.moved) == (RebalanceState.DONE, wrong)
    assert row.ended_at is not None
    assert store.misplaced(ids) == []
    assert store.counts() == {NEW: len(ids) - 10, PROCESSED: 10}
    # Now the older epoch may go.
    store.change(epochs=[sixteen(0)])
    assert store.all_found(ids)
    assert len(store.take(ids[10:], store.now)) == len(ids) - 10


@pytest.mark.fault
@pytest.mark.covers("S4.14")
@pytest.mark.parametrize(
    "point",
    [
        "requeststore.move.started",
        "requeststore.move.received",
        "requeststore.move.ended",
        "requeststore.rebalance.step",
        "requeststore.rebalance.claimed",
    ],
)
def test_a_worker_that_dies_leaves_it_to_the_next(
    store: Store, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = store.start()
    wrong = len(store.misplaced(store.ids))
    hits = Counter[str]()

    def hit(name: str) -> None:
        hits[name] += 1
        if name == point and hits[name] == 3 - (point.endswith("claimed") * 2):
            raise FailpointError(name)

    monkeypatch.setattr("yardkit.failpoints.hit", hit)
    with pytest.raises(FailpointError):
        work_on_rebalance(row.pk)
    monkeypatch.undo()
    assert store.all_found(store.ids)
    row.refresh_from_db()
    # It may be alive yet: nobody goes near it, until it has been silent for long.
    assert work_on_rebalance(row.pk) is None
    assert sweep_rebalances(now=row.stepped_at + timedelta(seconds=20)) == 0
    assert sweep_rebalances(now=row.stepped_at + timedelta(seconds=31)) == 1
    silent = row.stepped_at - timedelta(seconds=31)
    Rebalance.objects.filter(pk=row.pk).update(stepped_at=silent)
    row = work(row)
    assert (row.state, row.moved) == (RebalanceState.DONE, wrong)
    assert store.misplaced(store.ids) == []
    assert store.counts() == {NEW: len(store.ids)}


@pytest.mark.covers("S4.14")
def test_a_cancelled_one_leaves_nothing_between_two_places(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = store.start()

    def hit(name: str) -> None:
        if name == "requeststore.move.received":
            raise FailpointError(name)

    monkeypatch.setattr("yardkit.failpoints.hit", hit)
    with pytest.raises(FailpointError):
        work_on_rebalance(row.pk)
    monkeypatch.undo()
    assert store.counts()[MOVING] > 0
    cancel_rebalance(row, actor_label="ann")
    with pytest.raises(RebalanceEnded):
        cancel_rebalance(row)
    row.refresh_from_db()
    silent = row.stepped_at - timedelta(seconds=31)
    Rebalance.objects.filter(pk=row.pk).update(stepped_at=silent)
    assert sweep_rebalances(now=row.stepped_at) == 1
    assert work_on_rebalance(row.pk) == RebalanceState.CANCELLED
    assert store.counts() == {NEW: len(store.ids)}
    assert store.all_found(store.ids)
    row.refresh_from_db()
    assert row.moved > 0
    assert sweep_rebalances(now=row.stepped_at + timedelta(hours=1)) == 0
    actions = AuditRecord.objects.order_by("pk").values_list("action", flat=True)
    assert list(actions)[-2:] == ["requeststore.rebalance", "requeststore.cancel_rebalance"]
    # Another one does the rest.
    assert work(store.start()).state == RebalanceState.DONE
    assert store.misplaced(store.ids) == []


@pytest.mark.slow("1 s")
@pytest.mark.covers("S4.14")
def test_other_settings_meanwhile(store: Store) -> None:
    row = store.start()
    work_on_rebalance(row.pk, seconds=0)
    # What does not place requests elsewhere is taken as it is.
    first = sixteen(store.now - 30_000)
    store.change(epochs=[FOUR, first], description="Other words")
    assert work_on_rebalance(row.pk, seconds=0) == RebalanceState.RUNNING
    row.refresh_from_db()
    assert row.config_version == store.biz.version
    store.change(epochs=[FOUR, first, {"since": store.now - 10_000, "splits": 8}])
    row = work(row)
    assert row.state == RebalanceState.FAILED
    assert f"Version {store.biz.version} of the settings" in row.problem
    assert store.counts() == {NEW: len(store.ids)}
    # The next one brings all of them together.
    assert work(store.start()).state == RebalanceState.DONE
    assert store.misplaced(store.ids) == []


def test_what_cannot_be_begun(store: Store) -> None:
    with pytest.raises(NoSuchBiz):
        start_rebalance(project_id=store.project.pk, biz="shop")
    store.start()
    with pytest.raises(RebalanceRunning):
        store.start()
    store.change(epochs=[FOUR, sixteen(store.now + 3_600_000)])
    with pytest.raises(EpochNotStarted):
        store.start()
    Rebalance.objects.update(state=RebalanceState.CANCELLED)
    other = make_bizzes_elsewhere()
    with pytest.raises(NothingToRebalance):
        start_rebalance(project_id=other, biz="shop")


def make_bizzes_elsewhere() -> int:
    project = make_project()
    save_bizzes(project, shop={"epochs": [FOUR]})
    shared_request_store().wake()
    shared_request_store().poll()
    return project.pk


def test_entries_are_found_wherever_their_requests_were_moved(store: Store) -> None:
    """The queue knows nothing of moves: what it hands out is taken in the new place."""
    work(store.start())
    assert len(store.take(store.ids, store.now)) == len(store.ids)


@pytest.mark.slow("2 s")
@pytest.mark.covers("S4.14")
def test_a_look_that_a_move_overtakes_finds_the_request_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new place is asked first, then the request comes there, then the old place is asked."""
    work(store.start())
    store.change(
        epochs=[FOUR, sixteen(store.now - 30_000), {"since": store.now - 10_000, "splits": 9}]
    )
    (number, *_others) = store.misplaced(store.ids)
    row = store.start()
    newest = store.biz.spread.place(number, store.now)
    asked: list[ShardPlace] = []
    really = SqliteNode.find

    def find(node: SqliteNode, shard: Shard, ids: list[int]) -> list[StoredRequest | None]:
        answer = really(node, shard, ids)
        if list(ids) == [number] and node is store.yard.node(newest.node):
            asked.append(ShardPlace(newest.node, shard))
            if asked[-1] == newest and asked.count(newest) == 1:
                assert answer == [None]
                work(row)
        return answer

    monkeypatch.setattr(SqliteNode, "find", find)
    found = store.yard.find(number, store.project.pk)
    assert found is not None
    assert found.place == newest
    assert asked.count(newest) == 2
