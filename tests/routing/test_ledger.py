"""The ledger: deduplicated arrivals, moves with fencing, claims, and balanced counters."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from apps.projects.models import Project
from apps.routing.engine.steps import MOST, StepKind, step
from apps.routing.errors import InvalidItemMove
from apps.routing.models import CounterChange, RoutedItem
from apps.routing.queries import find_items, item_accounting, outbound_counts, reconcile_items
from apps.routing.services import (
    ItemNote,
    claim_due,
    claim_parked,
    fold_counter_changes,
    move_items,
    note_items,
    receive_items,
)
from apps.routing.states import FINAL, ItemState
from tests.access.factories import make_project
from tests.routing.factories import NOW, arrive, later, make_arrival, moved, row_of, to

pytestmark = pytest.mark.django_db

S = ItemState


@pytest.fixture
def project() -> Project:
    return make_project()


def test_what_arrives_is_written_down_as_it_is(project: Project) -> None:
    item = {"company_name": "楚江冻库", "n": 7, "half": "\ud800", "rt": True, "deep": {"a": [1.5]}}
    arrival = make_arrival(
        project, item=item, rules_version=3, steps=(step(NOW, StepKind.CONVERTED, "", "一"),)
    )
    (receipt,) = receive_items(arrivals=[arrival], now=NOW, lease_seconds=60)
    assert (receipt.new, receipt.held) == (True, True)
    row = row_of(receipt.entry)
    assert (row.state, row.inbound, row.due_at) == (S.RECEIVED, "logs", later(60))
    assert [(each.kind, each.detail) for each in row.story] == [
        ("received", ""),
        ("converted", "一"),
    ]
    assert row.story[0].at == NOW
    (found,) = find_items(project=project.pk, task_uuids=[str(row.task_uuid)]).values()
    assert found == receipt.entry
    assert row.rules_version == 3


def test_numbers_that_are_none_are_refused_and_nothing_is_written(project: Project) -> None:
    arrivals = [make_arrival(project), make_arrival(project, item={"n": float("nan")})]
    with pytest.raises(ValueError, match="JSON"):
        receive_items(arrivals=arrivals, now=NOW, lease_seconds=60)
    assert item_accounting(project.pk).received == 0


def test_a_message_that_comes_again_keeps_its_item(project: Project) -> None:
    arrival = make_arrival(project)
    (first,) = receive_items(arrivals=[arrival], now=NOW, lease_seconds=60)
    again, other = receive_items(
        arrivals=[arrival, make_arrival(project)], now=later(1), lease_seconds=60
    )
    assert again.entry.task_uuid == first.entry.task_uuid
    assert (again.new, again.held, other.new) == (False, True, True)
    # The first holder has lost it: its move is returned as lost.
    refused = move_items(moves=[to(first.entry, S.DISPATCHED)], now=later(2))
    assert [move.entry for move in refused.lost] == [first.entry]
    assert moved(again.entry, S.DISPATCHED).state == S.DISPATCHED
    assert [each.kind for each in row_of(first.entry).story][:2] == ["received", "redelivered"]
    (late,) = receive_items(arrivals=[arrival], now=later(3), lease_seconds=60)
    assert (late.new, late.held, late.entry.state) == (False, False, S.DISPATCHED)
    assert item_accounting(project.pk).redelivered == 2
    assert item_accounting(project.pk).received == 2


def test_the_same_message_twice_in_a_batch_is_one_item(project: Project) -> None:
    arrival = make_arrival(project)
    one, other = receive_items(arrivals=[arrival, arrival], now=NOW, lease_seconds=60)
    assert (one.new, one.held, other.new, other.held) == (True, True, False, False)
    assert one.entry == other.entry
    assert moved(one.entry, S.SUCCEEDED).is_final


def test_equal_places_of_other_inbounds_and_projects_are_other_messages(project: Project) -> None:
    arrivals = [
        make_arrival(project, identity="0/1"),
        make_arrival(project, identity="0/1", inbound="other"),
        make_arrival(make_project(), identity="0/1"),
        make_arrival(project, identity=""),
        make_arrival(project, identity=""),
    ]
    receipts = receive_items(arrivals=arrivals, now=NOW, lease_seconds=60)
    assert len({receipt.entry.id for receipt in receipts}) == 5


def test_a_given_name_is_kept_and_taken_once(project: Project) -> None:
    name = uuid.uuid4()
    arrival = make_arrival(project, task_uuid=name, identity="")
    (first,) = receive_items(arrivals=[arrival], now=NOW, lease_seconds=60)
    (again,) = receive_items(arrivals=[arrival], now=NOW, lease_seconds=60)
    (elsewhere,) = receive_items(
        arrivals=[make_arrival(make_project(), task_uuid=name)], now=NOW, lease_seconds=60
    )
    assert first.entry.task_uuid == name
    assert (again.new, again.entry.id, elsewhere.new) == (False, first.entry.id, True)


def test_a_move_writes_all_that_it_says(project: Project) -> None:
    (entry,) = arrive(project)
    entry = moved(
        entry,
        S.DISPATCHED,
        item={"task_result": 7},
        routed_count=1,
        retry_times=2,
        group_retry_times=3,
        rules_version=9,
        reason="matched",
        detail="a\x00b\ud800",
        steps=(step(NOW, StepKind.MATCHED, "captcha", "x\x00"),),
    )
    row = row_of(entry)
    assert (row.routed_count, row.retry_times, row.group_retry_times) == (1, 2, 3)
    assert (row.rules_version, row.reason, row.detail) == (9, "matched", "a\ufffdb\ufffd")
    assert (row.item, row.outbound, row.due_at) == ('{"task_result":7}', "captcha", later(600))
    assert row.story[-1].detail == "x\ufffd"
    assert find_items(project=project.pk, task_uuids=[str(entry.task_uuid)]) == {
        str(entry.task_uuid): entry
    }
    entry = moved(entry, S.SUCCEEDED)
    row = row_of(entry)
    assert (row.ended_at, row.due_at, row.item) == (NOW, None, '{"task_result":7}')
    assert row.step_count == len(row.story) == entry.step_count


@pytest.mark.parametrize("final", sorted(FINAL))
def test_no_item_leaves_a_final_state(project: Project, final: ItemState) -> None:
    (entry,) = arrive(project)
    if final == S.EXPIRED:
        entry = moved(entry, S.DISPATCHED)
    ended = moved(entry, final)
    for state in S:
        with pytest.raises(InvalidItemMove):
            move_items(moves=[to(ended, state)], now=NOW)
    # Nor by a holder of an old entry, for which it is still open.
    late = move_items(moves=[to(entry, S.SUCCEEDED)], now=NOW)
    assert (late.entries, len(late.lost)) == ({}, 1)
    assert row_of(entry).state == final
    assert claim_due(now=later(10**6), lease_seconds=1, limit=10) == []


def test_a_refused_move_takes_its_whole_batch_with_it(project: Project) -> None:
    one, other = arrive(project, 2)
    with pytest.raises(InvalidItemMove):
        move_items(moves=[to(one, S.DISPATCHED), to(other, S.PARKED, due_at=None)], now=NOW)
    assert item_accounting(project.pk).in_flight["received"] == 2


def test_of_two_moves_of_one_item_in_a_batch_the_first_is_made(project: Project) -> None:
    (entry,) = arrive(project)
    result = move_items(moves=[to(entry, S.FAILED), to(entry, S.SUCCEEDED)], now=NOW)
    assert result.entries[entry.id].state == S.FAILED
    assert [move.to for move in result.lost] == [S.SUCCEEDED]


def test_long_chains_are_cut_in_the_middle_and_counted(project: Project) -> None:
    (entry,) = arrive(project)
    for n in range(100):
        steps = tuple(step(NOW, StepKind.RETRIED, "captcha", f"{n}.{part}") for part in range(5))
        entry = moved(entry, S.RETRYING if n % 2 else S.PARKED, steps=steps)
    story = row_of(entry).story
    assert len(story) == row_of(entry).step_count == entry.step_count <= MOST
    (gap,) = [each for each in story if each.kind == StepKind.CUT]
    assert len(story) - 1 + int(gap.detail) == 501
    assert (story[0].kind, story[-1].detail) == ("received", "99.4")


def test_a_lease_that_is_over_gives_the_item_to_another(project: Project) -> None:
    held = arrive(project, 3)
    assert claim_due(now=later(59), lease_seconds=60, limit=10) == []
    claimed = claim_due(now=later(60), lease_seconds=60, limit=2)
    assert [entry.id for entry in claimed] == [entry.id for entry in held[:2]]
    assert [entry.attempts for entry in claimed] == [2, 2]
    assert [e.id for e in claim_due(now=later(60), lease_seconds=60, limit=9)] == [held[2].id]
    assert claim_due(now=later(119), lease_seconds=60, limit=9) == []
    late = move_items(moves=[to(entry, S.DISPATCHED) for entry in held], now=later(61))
    assert len(late.lost) == 3
    assert len(move_items(moves=[to(e, S.DISPATCHED) for e in claimed], now=later(61)).entries) == 2


def test_an_item_tells_that_it_was_taken_over(project: Project) -> None:
    held, retried, offered = arrive(project, 3)
    retried = moved(retried, S.RETRYING, due_at=later(60))
    offered = moved(offered, S.PARKED, outbound="full")
    ask: dict[str, Any] = {"lease_seconds": 60, "limit": 9}
    claim_parked(project=project.pk, outbound="full", now=NOW, **ask)
    assert "taken_over" not in row_of(offered).steps
    claim_due(now=later(60), **ask)
    for entry in (held, retried, offered):
        story = row_of(entry).story
        assert [each.kind for each in story].count("taken_over") == 1
        assert (story[-1].kind, story[-1].at) == ("taken_over", later(60))
        assert row_of(entry).step_count == len(story)


def test_an_item_that_is_taken_over_for_ever_does_not_grow_for_ever(project: Project) -> None:
    steps = (step(NOW, StepKind.MATCHED),) * (MOST - 2)
    entry = moved(arrive(project)[0], S.RETRYING, due_at=later(60), steps=steps)
    for number in (1, 2, 3):
        claim_due(now=later(60 * number), lease_seconds=60, limit=9)
        assert len(row_of(entry).story) == row_of(entry).step_count <= MOST
    (gap,) = [each for each in row_of(entry).story if each.kind == StepKind.CUT]
    kept = row_of(entry).step_count
    assert kept < MOST
    assert kept - 1 + int(gap.detail) == MOST - 1 + 3


def test_what_the_web_has_stored_is_taken_over_from_nobody(project: Project) -> None:
    arrivals = [make_arrival(project) for _ in range(2)]
    stored, retried = receive_items(arrivals=arrivals, now=NOW, lease_seconds=0)
    sent = moved(retried.entry, S.DISPATCHED, due_at=later(5))
    moved(sent, S.RETRYING, due_at=NOW)
    overdue = moved(arrive(project)[0], S.DISPATCHED, due_at=later(5))
    assert len(claim_due(now=later(9), lease_seconds=60, limit=9)) == 3
    for entry in (stored.entry, retried.entry, overdue):
        assert "taken_over" not in row_of(entry).steps


def test_claims_keep_to_projects_and_states(project: Project) -> None:
    (entry,) = arrive(project)
    moved(entry, S.DISPATCHED, due_at=later(1))
    other = make_project()
    arrive(other)
    now = later(100)
    assert claim_due(now=now, lease_seconds=9, limit=9, projects=[]) == []
    assert claim_due(now=now, lease_seconds=9, limit=9, states=[S.PARKED]) == []
    (due,) = claim_due(now=now, lease_seconds=9, limit=9, states=[S.DISPATCHED])
    assert (due.id, due.state) == (entry.id, S.DISPATCHED)
    (theirs,) = claim_due(now=now, lease_seconds=9, limit=9, projects=[other.pk])
    assert theirs.project == other.pk


def test_a_claim_passes_over_nothing_that_is_due_in_another_state(project: Project) -> None:
    entries = arrive(project, 4)
    for entry in entries[:3]:
        moved(entry, S.PARKED, due_at=later(1))
    states = [S.RECEIVED, S.RETRYING, S.DISPATCHED]
    with CaptureQueriesContext(connection) as said:
        (due,) = claim_due(now=later(100), lease_seconds=60, limit=9, states=states)
    assert due.id == entries[3].id
    asked = [each["sql"] for each in said.captured_queries if "<=" in each["sql"]]
    assert len(asked) == len(states)
    for statement in asked:
        (found,) = [line for line in plan(statement) if "due_at" in line]
        assert re.search(r"state\b.*=.*AND", found)


def plan(statement: str) -> list[str]:
    """Return the index and columns that the database uses for a statement."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # The planner uses no index for a table of a few rows.
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute(f"EXPLAIN {statement}")
            return [line for (line,) in cursor.fetchall() if "Index Cond:" in line]
        cursor.execute(f"EXPLAIN QUERY PLAN {statement}")
        return [row[-1] for row in cursor.fetchall() if "USING INDEX" in row[-1]]


def test_claims_of_several_states_take_what_waits_longest(project: Project) -> None:
    first, second, third, last = arrive(project, 4)
    moved(first, S.DISPATCHED, due_at=later(70))
    moved(second, S.RETRYING, due_at=later(10))
    moved(third, S.DISPATCHED, due_at=later(20))
    claimed = claim_due(now=later(100), lease_seconds=60, limit=3)
    assert [entry.id for entry in claimed] == [second.id, third.id, last.id]


@pytest.mark.covers("S2.38")
def test_parked_items_wait_for_their_outbound_and_are_offered_in_order(project: Project) -> None:
    parked = [moved(entry, S.PARKED, outbound="full") for entry in arrive(project, 3)]
    moved(arrive(project)[0], S.PARKED, outbound="away")
    assert item_accounting(project.pk).parked == 4
    ask = {"project": project.pk, "outbound": "full", "now": later(5), "lease_seconds": 60}
    first = claim_parked(**ask, limit=2)
    assert [entry.id for entry in first] == [entry.id for entry in parked[:2]]
    assert [entry.id for entry in claim_parked(**ask, limit=9)] == [parked[2].id]
    # Still full: it is parked again, and may be claimed again at once.
    moved(first[0], S.PARKED, outbound="full")
    assert [entry.id for entry in claim_parked(**ask, limit=9)] == [parked[0].id]
    # The router that claimed the second has stopped; the lease expires.
    ask["now"] = later(65)
    assert [entry.id for entry in claim_parked(**ask, limit=9)] == [e.id for e in parked]


def test_results_speak_of_anything(project: Project) -> None:
    (entry,) = arrive(project)
    known = str(entry.task_uuid)
    asked = [known, known.upper(), entry.task_uuid.hex, "", "nonsense", str(uuid.uuid4()), 7]
    found = find_items(project=project.pk, task_uuids=asked)  # type: ignore[arg-type]
    assert found == dict.fromkeys((known, known.upper(), entry.task_uuid.hex), entry)
    assert find_items(project=make_project().pk, task_uuids=[known]) == {}


def test_late_results_are_noted_and_counted(project: Project) -> None:
    (entry,) = arrive(project)
    ended = moved(entry, S.FAILED)
    note = ItemNote(ended, step(NOW, StepKind.LATE_RESULT, "captcha", "1000"))
    assert note_items(notes=[note, note]) == 2
    row = row_of(ended)
    assert [each.kind for each in row.story][-2:] == ["late_result", "late_result"]
    assert (row.state, row.generation) == (S.FAILED, ended.generation)
    assert item_accounting(project.pk).late_results == 2
    RoutedItem.objects.all().delete()
    assert note_items(notes=[note]) == 0


def test_the_books_balance_and_agree_with_the_rows(project: Project) -> None:
    items = arrive(project, 6)
    arrive(make_project(), 5)
    moved(items[0], S.PARKED, outbound="full")
    sent = [moved(entry, S.DISPATCHED) for entry in items[1:4]]
    moved(sent[0], S.SUCCEEDED)
    moved(sent[1], S.RETRYING, outbound="other")
    moved(items[4], S.REJECTED)
    book = item_accounting(project.pk)
    assert (book.received, book.parked, book.balanced) == (6, 1, True)
    assert book.in_flight == {"received": 1, "dispatched": 1, "retrying": 1}
    assert {state: n for state, n in book.final.items() if n} == {"succeeded": 1, "rejected": 1}
    assert {counts.outbound: counts.by_state for counts in outbound_counts(project.pk)} == {
        "": {"received": 1, "rejected": 1},
        "captcha": {"dispatched": 1, "succeeded": 1},
        "full": {"parked": 1},
        "other": {"retrying": 1},
    }
    assert reconcile_items(project.pk).holds
    CounterChange.objects.filter(what="dispatched").delete()
    assert not reconcile_items(project.pk).holds


def test_folded_counters_say_the_same(project: Project) -> None:
    for _ in range(80):
        moved(moved(arrive(project)[0], S.DISPATCHED), S.SUCCEEDED)
    before = item_accounting(project.pk)
    rows = CounterChange.objects.count()
    gone = fold_counter_changes()
    assert gone > 200
    assert CounterChange.objects.count() == rows - gone <= 4
    assert item_accounting(project.pk) == before
    assert fold_counter_changes() == 0


def test_the_database_itself_keeps_open_items_due(project: Project) -> None:
    (entry,) = arrive(project)
    with pytest.raises(IntegrityError):
        RoutedItem.objects.filter(pk=entry.id).update(due_at=None)


def test_what_is_brought_again_and_has_no_name_is_a_second_item_that_says_so(
    project: Project,
) -> None:
    again = [make_arrival(project, identity="", redelivered=True) for _ in range(2)]
    receipts = receive_items(arrivals=again, now=NOW, lease_seconds=9)
    assert [receipt.new for receipt in receipts] == [True, True]
    assert [each.kind for each in row_of(receipts[0].entry).story] == ["received", "redelivered"]
    (known,) = receive_items(arrivals=[make_arrival(project)], now=NOW, lease_seconds=9)
    assert [each.kind for each in row_of(known.entry).story] == ["received"]
    book = item_accounting(project.pk)
    assert (book.received, book.redelivered) == (3, 2)
    assert reconcile_items(project.pk).holds
