"""Other segments, time zones and keys: what they would do, and doing it exactly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.seeds.engine.seeds import State
from apps.seeds.errors import BadGrouping, MoveUnderWay, OperationRunning, SeedsStillLeased
from apps.seeds.models import Frontier, Operation
from apps.seeds.services import (
    cancel_operation,
    change_granularity,
    client_of,
    operation_steps,
    preview_granularity,
    show_segments,
    work_on_operation,
)
from apps.seeds.services.granularity import SegmentPreview
from apps.seeds.states import OperationState
from apps.seeds.stores.base import SegmentCounts
from tests.seeds.services.small_service import Desk
from yardkit.protocol import Seed, SeedFinish, SeedOutcome

pytestmark = pytest.mark.django_db
DAY = 86_400_000
# A Monday in UTC.
MONDAY = 1_779_667_200_000
TUESDAY = MONDAY + DAY


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several for a segment."""
    monkeypatch.setattr(operation_steps, "MOVE_SLICE", 3)


def add(frontier: Frontier, at: int, *names: str) -> None:
    client_of(frontier).add(Seed(f"http://host/{name}", active_at=at) for name in names)


def finish(frontier: Frontier, count: int) -> None:
    client = client_of(frontier, owner="w")
    leased = client.lease(count)
    client.finish(
        [
            SeedFinish(one.segment, one.key, leased.generation, SeedOutcome.SUCCESS)
            for one in leased.seeds
        ]
    )


def run(operation: Operation) -> Operation:
    while work_on_operation(operation.pk, seconds=0) == OperationState.WAITING:
        pass
    operation.refresh_from_db()
    return operation


def total(frontier: Frontier) -> SegmentCounts:
    sums = SegmentCounts()
    for one in show_segments(frontier):
        assert one.books.balance()
        sums = sums.plus(one.books)
    return sums


def places(desk: Desk, frontier: Frontier) -> set[tuple[int, str]]:
    return {
        (one.segment, one.key)
        for segment in desk.store.segments(frontier.pk)
        for one in desk.store.export(frontier.pk, segment.segment)
    }


@pytest.fixture
def filled(frontier: Frontier) -> Frontier:
    """Two days of one week, of which two keys are on both, one of them done on Monday."""
    add(frontier, MONDAY + 5, "a", "b", "c")
    finish(frontier, 1)
    add(frontier, TUESDAY + 5, "a", "b", "d")
    return frontier


def test_a_preview_tells_what_a_change_would_do(filled: Frontier) -> None:
    found = preview_granularity(filled, segments="week")
    assert found.segments == [
        SegmentPreview(MONDAY, pending=2, leased=0, ended=1, looked_at=3, targets={MONDAY: 3}),
        SegmentPreview(TUESDAY, pending=3, leased=0, ended=0, looked_at=3, targets={MONDAY: 3}),
    ]
    assert (found.total, found.exact, found.changes) == (6, True, True)
    assert (found.meeting_at_least, found.meeting_at_most) == (2, 2)
    # "d" alone goes where nothing like it is; the others of Tuesday would find Monday's.
    assert (found.new_again_at_least, found.new_again_at_most) == (1, 1)
    assert (found.kept_at_least, found.kept_at_most) == (0, 0)
    assert total(filled) == SegmentCounts(added=6, pending=5, succeeded=1)
    same = preview_granularity(filled)
    assert (same.changes, same.meeting_at_most, same.new_again_at_most) == (False, 0, 0)


def test_a_preview_of_many_seeds_says_that_it_is_a_bound(filled: Frontier) -> None:
    found = preview_granularity(filled, segments="week", exact_seeds=4)
    assert (found.total, found.looked_at, found.exact) == (6, 4, False)
    assert found.meeting_at_least <= 2 <= found.meeting_at_most == 3
    assert found.new_again_at_least <= 1 <= found.new_again_at_most
    assert [one.pending for one in found.segments] == [2, 3]


def test_leased_seeds_are_told(filled: Frontier) -> None:
    client_of(filled, owner="w").lease(2)
    found = preview_granularity(filled, segments="week")
    assert (found.leased, [one.leased for one in found.segments]) == (2, [2, 0])


@pytest.mark.covers("S3.2", "S3.3")
def test_seeds_move_to_the_segments_of_the_new_rules(desk: Desk, filled: Frontier) -> None:
    found = preview_granularity(filled, segments="week")
    operation = run(change_granularity(filled, segments="week", requested_by="anna"))
    assert (operation.state, operation.error) == (OperationState.DONE, "")
    assert (operation.done, operation.total) == (6, 6)
    assert operation.result == {"moved": 4, "met": found.meeting_at_most, "kept": 0}
    desk.follow(filled)
    assert (filled.segments, filled.is_frozen) == ("week", False)
    assert places(desk, filled) == {(MONDAY, f"http://host/{name}") for name in "abcd"}
    assert total(filled) == SegmentCounts(added=4, duplicates=2, pending=3, succeeded=1)
    known = client_of(filled).look_up(Seed("http://host/a", active_at=TUESDAY + 9)).known
    assert known is not None
    assert known.state == State.SUCCEEDED
    # And nothing of what moved is new again.
    answers = client_of(filled).add(
        Seed(f"http://host/{name}", active_at=TUESDAY + 9) for name in "abcde"
    )
    assert [one.code for one in answers] == ["duplicate"] * 4 + ["new"]
    assert AuditRecord.objects.filter(action="seeds.move", actor_label="anna").count() == 1


@pytest.mark.slow("2 s")
def test_there_and_back_leaves_every_seed_in_its_place(desk: Desk, frontier: Frontier) -> None:
    for day in range(4):
        add(frontier, MONDAY + day * DAY + 5, *(f"{day}-{number}" for number in range(5)))
    client_of(frontier).add([Seed("http://timeless")])
    before = places(desk, frontier)
    for segments, zone in (("hour", "UTC"), ("days:3", "Asia/Shanghai"), ("day", "UTC")):
        run(change_granularity(frontier, segments=segments, time_zone=zone))
        desk.follow(frontier)
        assert (frontier.segments, frontier.time_zone) == (segments, zone)
        assert total(frontier) == SegmentCounts(added=21, pending=21)
    assert places(desk, frontier) == before


def test_other_keys_make_one_of_many(desk: Desk, frontier: Frontier) -> None:
    client_of(frontier).add(Seed(f"http://host/{number % 2}#{number}") for number in range(8))
    found = preview_granularity(frontier, keys="page")
    assert (found.meeting_at_least, found.new_again_at_least) == (6, 2)
    operation = run(change_granularity(frontier, keys="page"))
    assert (operation.state, operation.result["met"]) == (OperationState.DONE, 6)
    assert places(desk, frontier) == {(0, "http://host/0"), (0, "http://host/1")}


@pytest.mark.slow("1 s")
def test_leased_seeds_are_refused_or_waited_for(
    desk: Desk, filled: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(filled, owner="w")
    leased = client.lease(2)
    with pytest.raises(SeedsStillLeased, match="2 seeds"):
        change_granularity(filled, segments="week")
    monkeypatch.setattr(operation_steps, "_LOOK_SECONDS", 0.02)
    given_up = run(change_granularity(filled, segments="week", wait_seconds=0.2))
    assert given_up.state == OperationState.FAILED
    assert "2 seeds are still leased" in given_up.error
    desk.follow(filled)
    assert (filled.is_frozen, filled.segments) == (False, "day")
    operation = change_granularity(filled, segments="week", wait_seconds=60)
    for _ in range(5):
        assert work_on_operation(operation.pk, seconds=0) == OperationState.WAITING
    desk.follow(filled)
    assert filled.is_frozen
    client.give_back(leased.generation)
    assert run(operation).state == OperationState.DONE


def test_a_frozen_frontier_takes_nothing_and_goes_on_afterwards(
    desk: Desk, filled: Frontier
) -> None:
    operation = change_granularity(filled, segments="week")
    work_on_operation(operation.pk, seconds=0)
    desk.follow(filled)
    answers: list[str] = []
    adding = threading.Thread(
        target=lambda: answers.extend(
            one.code
            for one in client_of(filled, patience=30).add([Seed("http://x", active_at=TUESDAY)])
        )
    )
    adding.start()
    assert run(operation).state == OperationState.DONE
    assert answers == []
    desk.follow(filled)
    adding.join(30)
    assert answers == ["new"]
    assert (MONDAY, "http://x") in places(desk, filled)


def test_a_move_can_be_cancelled_before_it_moves_anything(desk: Desk, filled: Frontier) -> None:
    operation = change_granularity(filled, segments="week")
    work_on_operation(operation.pk, seconds=0)
    with pytest.raises(OperationRunning):
        change_granularity(filled, segments="month")
    cancel_operation(operation)
    filled.refresh_from_db()
    assert not filled.is_frozen
    second = change_granularity(filled, segments="week")
    while second.arguments["phase"] != "out":
        work_on_operation(second.pk, seconds=0)
        second.refresh_from_db()
    with pytest.raises(MoveUnderWay):
        cancel_operation(second)
    assert run(second).state == OperationState.DONE


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("segments", {"segments": "fortnight"}),
        ("time_zone", {"time_zone": "Mars/Base"}),
        ("keys", {"keys": "guess"}),
        ("keys", {"keys": "page", "ignored_parameters": ["t"]}),
        ("ignored_parameters", {"keys": "canonical", "ignored_parameters": [""]}),
        ("segments", {"segments": "x" * 101}),
    ],
    ids=["segments", "zone", "keys", "parameters", "empty-parameter", "long"],
)
def test_rules_that_no_service_could_work_by(
    filled: Frontier, field: str, values: dict[str, Any]
) -> None:
    for call in (preview_granularity, change_granularity):
        with pytest.raises(BadGrouping) as refusal:
            call(filled, **values)
        assert list(refusal.value.fields) == [field]
    assert not Operation.objects.exists()


def steps(operation: Operation) -> Iterator[str]:
    """Where it is after each slice, until it has ended."""
    while True:
        operation.refresh_from_db()
        if operation.state != OperationState.WAITING:
            return
        yield str(operation.arguments["phase"])
        work_on_operation(operation.pk, seconds=0)


def test_each_phase_is_one_that_can_be_taken_up_again(desk: Desk, filled: Frontier) -> None:
    operation = change_granularity(filled, segments="week")
    seen = []
    for phase in steps(operation):
        seen.append(phase)
        # The worker died after its slice, before it could say so: it is done once more.
        before = dict(operation.arguments)
        work_on_operation(operation.pk, seconds=0)
        operation.refresh_from_db()
        if operation.state == OperationState.WAITING and seen.count(phase) < 3:
            Operation.objects.filter(pk=operation.pk).update(arguments=before)
    assert seen[-1] == "save"
    assert operation.state == OperationState.DONE
    assert places(desk, filled) == {(MONDAY, f"http://host/{name}") for name in "abcd"}
    assert total(filled) == SegmentCounts(added=4, duplicates=2, pending=3, succeeded=1)
