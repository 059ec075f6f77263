"""Operations on many seeds: begun, worked on in slices, cancelled, taken up again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.seeds.engine.segments import segment_text
from apps.seeds.errors import BadArguments, OperationEnded, OperationRunning
from apps.seeds.models import Frontier, Operation
from apps.seeds.services import (
    cancel_operation,
    client_of,
    management,
    operation_steps,
    show_segments,
    start_operation,
    sweep_operations,
    work_on_operation,
)
from apps.seeds.services.clients import manager_of
from apps.seeds.services.operations import follow_operation
from apps.seeds.states import OperationKind, OperationState
from apps.seeds.stores.operations import now_ms
from tests.seeds.services.small_service import Desk
from yardkit.protocol import Seed, SeedFinish, SeedOutcome

pytestmark = pytest.mark.django_db
DAY = 86_400_000


def fill(frontier: Frontier, count: int, *, days_ago: int = 0, failed: int = 0) -> int:
    """Seeds of a day, of which some have failed; their segment."""
    client = client_of(frontier, owner="w")
    at = now_ms() - days_ago * DAY - 1
    client.add(Seed(f"http://host/{number}", active_at=at) for number in range(count))
    if failed:
        leased = client.lease(failed)
        client.finish(
            [
                SeedFinish(one.segment, one.key, leased.generation, SeedOutcome.GIVEN_UP)
                for one in leased.seeds
            ]
        )
    return at - at % DAY


def run(operation: Operation) -> Operation:
    """To its end."""
    while work_on_operation(operation.pk, seconds=0) == OperationState.WAITING:
        pass
    operation.refresh_from_db()
    return operation


def test_failed_seeds_come_into_the_segment_of_now(
    frontier: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_steps, "SLICE", 4)
    source = fill(frontier, 10, days_ago=2, failed=7)
    operation = start_operation(frontier, OperationKind.REOPEN_FAILED, {"source": source}, "anna")
    assert (operation.state, operation.requested_by) == (OperationState.WAITING, "anna")
    assert AuditRecord.objects.filter(action="seeds.reopen_failed", actor_label="anna").exists()
    done = run(operation)
    assert (done.state, done.done, done.total, done.error) == (OperationState.DONE, 10, 10, "")
    assert (done.result["reopened"], done.result["duplicates"]) == (7, 0)
    today = now_ms() - now_ms() % DAY
    assert {one.segment: one.books.pending for one in show_segments(frontier)} == {
        source: 3,
        today: 7,
    }


def test_a_segment_is_dropped(frontier: Frontier) -> None:
    segment = fill(frontier, 5)
    done = run(start_operation(frontier, OperationKind.DROP, {"segment": segment}))
    assert (done.state, done.done, done.total) == (OperationState.DONE, 5, 5)
    assert show_segments(frontier) == []
    again = run(start_operation(frontier, OperationKind.DROP, {"segment": segment}))
    text = f"Segment {segment_text(segment)} does not exist."
    assert (again.state, again.error) == (OperationState.FAILED, text)


def test_a_frontier_is_wiped_segment_by_segment(frontier: Frontier) -> None:
    for days in range(3):
        fill(frontier, 5, days_ago=days)
    client_of(frontier, owner="w").lease(1)
    refused = run(start_operation(frontier, OperationKind.WIPE))
    assert refused.state == OperationState.FAILED
    assert "leased" in refused.error
    done = run(start_operation(frontier, OperationKind.WIPE, {"leased_too": True}))
    assert (done.state, done.done) == (OperationState.DONE, 15)
    assert (done.result["segments"], done.result["leased"]) == (3, 1)
    assert show_segments(frontier) == []


def test_a_cancelled_operation_ends_after_its_slice(
    frontier: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_steps, "SLICE", 1)
    source = fill(frontier, 9, days_ago=2, failed=9)
    operation = start_operation(frontier, OperationKind.REOPEN_FAILED, {"source": source})

    def cancel(now: Operation) -> None:
        if now.done == 3:
            cancel_operation(now)

    assert work_on_operation(operation.pk, on_progress=cancel) is None
    operation.refresh_from_db()
    assert (operation.state, operation.done) == (OperationState.CANCELLED, 3)
    assert operation.ended_at is not None
    with pytest.raises(OperationEnded):
        cancel_operation(operation)
    assert work_on_operation(operation.pk) is None


def test_what_a_dead_worker_had_is_taken_up_where_it_was(
    frontier: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_steps, "SLICE", 1)
    source = fill(frontier, 6, days_ago=2, failed=6)
    operation = start_operation(frontier, OperationKind.REOPEN_FAILED, {"source": source})

    class Killed(BaseException):
        pass

    def die(now: Operation) -> None:
        if now.done == 4:
            raise Killed

    with pytest.raises(Killed):
        work_on_operation(operation.pk, on_progress=die)
    operation.refresh_from_db()
    assert (operation.state, operation.done) == (OperationState.RUNNING, 4)
    now = timezone.now()
    sweep_operations(now=now)
    assert work_on_operation(operation.pk) is None
    sweep_operations(now=now + timedelta(seconds=31))
    done = run(operation)
    assert (done.state, done.result["reopened"]) == (OperationState.DONE, 6)


def test_an_operation_that_kills_its_workers_is_given_up(frontier: Frontier) -> None:
    operation = start_operation(frontier, OperationKind.WIPE)
    for _ in range(5):
        Operation.objects.filter(pk=operation.pk, state=OperationState.WAITING).update(
            state=OperationState.RUNNING, beat_at=timezone.now() - timedelta(seconds=60)
        )
        sweep_operations(now=timezone.now())
    operation.refresh_from_db()
    assert (operation.state, operation.error) == (
        OperationState.FAILED,
        "5 workers died while executing it",
    )


def test_an_operation_waits_for_a_service_that_is_away(
    frontier: Frontier, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = fill(frontier, 2)
    operation = start_operation(frontier, OperationKind.DROP, {"segment": segment})
    monkeypatch.setattr(management, "manager_of", lambda one, **_told: manager_of(one, timeout=0.3))
    desk.away.set()
    assert work_on_operation(operation.pk) == OperationState.WAITING
    operation.refresh_from_db()
    assert "does not answer" in operation.error
    desk.away.clear()
    done = run(operation)
    assert (done.state, done.error) == (OperationState.DONE, "")


def test_somebody_may_work_on_it_in_a_terminal(frontier: Frontier) -> None:
    segment = fill(frontier, 4)
    operation = start_operation(frontier, OperationKind.DROP, {"segment": segment})
    seen: list[tuple[str, int]] = []
    done = follow_operation(operation, lambda one: seen.append((one.state, one.done)))
    assert done.state == OperationState.DONE
    assert seen[-1] == (OperationState.DONE, 4)


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("reopen_failed", {}),
        ("reopen_failed", {"source": -1}),
        ("reopen_failed", {"source": 0, "target": "x"}),
        ("drop", {"segment": True}),
        ("move", {}),
        ("import", {}),
        ("sing", {}),
    ],
    ids=["no-source", "before-time", "target", "segment", "move", "import", "unknown"],
)
def test_bad_arguments_begin_nothing(
    db: None, frontier: Frontier, kind: str, arguments: dict[str, object]
) -> None:
    with pytest.raises(BadArguments):
        start_operation(frontier, kind, arguments)
    assert not Operation.objects.exists()


def test_nothing_else_goes_on_beside_a_move(frontier: Frontier) -> None:
    move = {"grouping": {}, "wait_until": 0}
    wipe = start_operation(frontier, OperationKind.WIPE)
    with pytest.raises(OperationRunning):
        start_operation(frontier, OperationKind.MOVE, move)
    cancel_operation(wipe)
    start_operation(frontier, OperationKind.MOVE, move)
    for kind in (OperationKind.MOVE, OperationKind.WIPE):
        with pytest.raises(OperationRunning):
            start_operation(frontier, kind, move)
