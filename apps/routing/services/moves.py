"""Move items between states in batches, with optimistic locking on the generation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

import msgspec

from apps.routing.engine.failures import FailureRecord
from apps.routing.engine.items import Item
from apps.routing.engine.steps import MOST, Step, StepKind, cut, read_steps, writable, write_steps
from apps.routing.errors import InvalidItemMove
from apps.routing.models import NAME_CHARACTERS, RoutedItem
from apps.routing.queries import CountedEvent, LedgerEntry
from apps.routing.services.ledger import (
    CounterKey,
    add_counts,
    encode_item,
    index_values,
    lock_rows,
)
from apps.routing.services.statements import ItemUpdate, update_items
from apps.routing.states import FINAL, ItemState, may_move
from apps.runtime.services import in_short_transaction
from yardkit import failpoints


class ItemMove(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A change of state of one item; None keeps the value of ``entry``."""

    entry: LedgerEntry
    to: ItemState
    # Required for an open state: when the item is due again. None for a final state.
    due_at: datetime | None = None
    outbound: str | None = None
    steps: tuple[Step, ...] = ()
    item: Item | None = None
    routed_count: int | None = None
    retry_times: int | None = None
    group_retry_times: int | None = None
    rules_version: int | None = None
    # Why: a code for programs, and a text for users.
    reason: str = ""
    detail: str = ""


class MovedItems(msgspec.Struct, frozen=True):
    """Outcome of a batch of moves."""

    # New entries of the moved items, by id.
    entries: dict[int, LedgerEntry]
    # Moves that lost: the item was changed since it was read, or occurred earlier in the batch.
    lost: list[ItemMove]


def move_items(*, moves: Sequence[ItemMove], now: datetime) -> MovedItems:
    """Move items, each only if it has not changed since its entry was read.

    Raises:
        InvalidItemMove: a move is not allowed from the item's state, or its ``due_at`` does not fit
            the new state; nothing is written.
    """
    for move in moves:
        _check(move)
    if not moves:
        return MovedItems({}, [])
    return in_short_transaction(partial(_move, list(moves), now))


def _check(move: ItemMove) -> None:
    if not may_move(move.entry.state, move.to) or (move.to in FINAL) != (move.due_at is None):
        raise InvalidItemMove


def _move(moves: list[ItemMove], now: datetime) -> MovedItems:
    once: dict[int, ItemMove] = {}
    for move in moves:
        once.setdefault(move.entry.id, move)
    # Always ordered by id, so that two batches seldom deadlock.
    chosen = [once[pk] for pk in sorted(once)]
    cut_steps = _cut_steps([m for m in chosen if m.entry.step_count + len(m.steps) > MOST])
    rows = [_row(move, cut_steps, now) for move in chosen]
    done = update_items(rows, now=now)
    counted: Counter[CounterKey] = Counter()
    new_entries: dict[int, LedgerEntry] = {}
    for move, row in zip(chosen, rows, strict=True):
        if move.entry.id not in done:
            continue
        after = _after(move, row)
        new_entries[after.id] = after
        before = move.entry
        counted[before.project, before.inbound, before.outbound, before.state] -= 1
        counted[after.project, after.inbound, after.outbound, after.state] += 1
    add_counts(counted)
    changed = [m for m in chosen if m.item is not None and m.entry.id in done]
    index_values(((new_entries[m.entry.id], m.item or {}) for m in changed), now)
    failpoints.hit("routing.moved_before_commit")
    lost = [m for m in moves if m.entry.id not in done or once[m.entry.id] is not m]
    return MovedItems(new_entries, lost)


def _row(move: ItemMove, cut_steps: Mapping[int, list[Step]], now: datetime) -> ItemUpdate:
    entry = move.entry
    whole = entry.id in cut_steps
    steps = cut_steps[entry.id] if whole else move.steps
    outbound = entry.outbound if move.outbound is None else move.outbound[:NAME_CHARACTERS]
    return ItemUpdate(
        entry.id,
        entry.generation,
        entry.state,
        entry.outbound,
        move.to.value,
        outbound,
        move.due_at,
        now if move.due_at is None else None,
        _or(move.routed_count, entry.routed_count),
        _or(move.retry_times, entry.retry_times),
        _or(move.group_retry_times, entry.group_retry_times),
        _or(move.rules_version, entry.rules_version),
        move.reason[:40],
        writable(move.detail, 500),
        None if move.item is None else encode_item(move.item),
        write_steps(steps),
        whole,
        len(steps),
    )


def _after(move: ItemMove, row: ItemUpdate) -> LedgerEntry:
    before = move.entry
    return LedgerEntry(
        before.id,
        before.project,
        before.task_uuid,
        before.inbound,
        row.outbound,
        row.state,
        row.from_generation + 1,
        0,
        row.due_at,
        before.received_at,
        row.routed_count,
        row.retry_times,
        row.group_retry_times,
        row.rules_version,
        row.step_count if row.whole else before.step_count + row.step_count,
        before.text if row.item is None else row.item,
    )


def _or(value: int | None, before: int) -> int:
    return before if value is None else value


def _cut_steps(moves: list[ItemMove]) -> dict[int, list[Step]]:
    """Return the shortened step lists of items that would exceed the maximum, by id."""
    if not moves:
        return {}
    rows = RoutedItem.objects.filter(pk__in=[move.entry.id for move in moves]).order_by("id")
    before = dict(lock_rows(rows).values_list("id", "steps"))
    return {
        move.entry.id: cut([*read_steps(before.get(move.entry.id, "")), *move.steps])
        for move in moves
    }


def failure_record(move: ItemMove, *, slug: str, status: str, now: datetime) -> FailureRecord:
    """Return the record of the failure file for a move that ends its item without success."""
    return FailureRecord(
        task_uuid=str(move.entry.task_uuid),
        project=slug,
        inbound=move.entry.inbound,
        outbound=move.outbound or "",
        state=move.to.value,
        reason=move.reason,
        detail=move.detail,
        status=status,
        at=now,
        item=move.entry.item if move.item is None else move.item,
    )


class ItemNote(msgspec.Struct, frozen=True):
    """A step to add to an item without moving it, for example about a late result."""

    entry: LedgerEntry
    step: Step


def note_items(*, notes: Sequence[ItemNote]) -> int:
    """Add steps to items in any state without moving them; return how many were written.

    Late results are also counted.
    """
    if not notes:
        return 0
    return in_short_transaction(partial(_note, list(notes)))


def _note(notes: list[ItemNote]) -> int:
    rows = lock_rows(RoutedItem.objects.filter(pk__in={n.entry.id for n in notes}).order_by("id"))
    rows_by_id = {row.pk: row for row in rows.only("id", "steps", "step_count")}
    written = 0
    counted: Counter[CounterKey] = Counter()
    for note in notes:
        row = rows_by_id.get(note.entry.id)
        if row is None:
            continue
        steps = cut([*read_steps(row.steps), note.step])
        row.steps, row.step_count = write_steps(steps), len(steps)
        written += 1
        if note.step.kind == StepKind.LATE_RESULT:
            key = (note.entry.project, note.entry.inbound, note.entry.outbound)
            counted[(*key, CountedEvent.LATE_RESULT.value)] += 1
    RoutedItem.objects.bulk_update(rows_by_id.values(), ["steps", "step_count"], batch_size=200)
    add_counts(counted)
    return written
