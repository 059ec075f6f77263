"""Moves of items, in batches: each only if the item still stands as it was read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

import msgspec

from apps.routing.engine.items import Item
from apps.routing.engine.steps import MOST, Step, StepKind, cut, read_steps, writable, write_steps
from apps.routing.errors import ItemMoveRefused
from apps.routing.models import NAME_CHARACTERS, RoutedItem
from apps.routing.queries import Counted, Entry
from apps.routing.services.statements import Changed, update_items
from apps.routing.services.writing import Key, file_values, item_text, locked, tally
from apps.routing.states import FINAL, ItemState, may_move
from apps.runtime.services import in_short_transaction
from yardkit import failpoints


class Move(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One move of an item; None keeps what the entry says."""

    entry: Entry
    to: ItemState
    # Of an open state: when somebody must look at it again.
    due_at: datetime | None = None
    outbound: str | None = None
    steps: tuple[Step, ...] = ()
    item: Item | None = None
    routed_count: int | None = None
    retry_times: int | None = None
    group_retry_times: int | None = None
    rules_version: int | None = None
    # Why: a word for programs, and a text for people.
    reason: str = ""
    detail: str = ""


class Moved(msgspec.Struct, frozen=True):
    """What became of a batch of moves."""

    # As they stand now, by id.
    entries: dict[int, Entry]
    # Somebody else was quicker, or the same item was there before in this batch.
    beaten: list[Move]


def move_items(*, moves: Sequence[Move], now: datetime) -> Moved:
    """Move many items at once, each only if it still stands as its entry says.

    Raises:
        ItemMoveRefused: a move that no item can make; nothing is written.
    """
    for move in moves:
        _check(move)
    if not moves:
        return Moved({}, [])
    return in_short_transaction(partial(_move, list(moves), now))


def _check(move: Move) -> None:
    if not may_move(move.entry.state, move.to) or (move.to in FINAL) != (move.due_at is None):
        raise ItemMoveRefused


def _move(moves: list[Move], now: datetime) -> Moved:
    once: dict[int, Move] = {}
    for move in moves:
        once.setdefault(move.entry.id, move)
    # In one order, so that two batches seldom wait for each other crosswise.
    chosen = [once[pk] for pk in sorted(once)]
    full = _cut_chains([m for m in chosen if m.entry.step_count + len(m.steps) > MOST])
    rows = [_moved_row(move, full, now) for move in chosen]
    done = update_items(rows, now=now)
    counted: Counter[Key] = Counter()
    now_standing: dict[int, Entry] = {}
    for move, row in zip(chosen, rows, strict=True):
        if move.entry.id not in done:
            continue
        after = _after(move, row)
        now_standing[after.id] = after
        before = move.entry
        counted[before.project, before.inbound, before.outbound, before.state] -= 1
        counted[after.project, after.inbound, after.outbound, after.state] += 1
    tally(counted)
    changed = [m for m in chosen if m.item is not None and m.entry.id in done]
    file_values(((now_standing[m.entry.id], m.item or {}) for m in changed), now)
    failpoints.hit("routing.moved_before_commit")
    beaten = [m for m in moves if m.entry.id not in done or once[m.entry.id] is not m]
    return Moved(now_standing, beaten)


def _moved_row(move: Move, full: Mapping[int, list[Step]], now: datetime) -> Changed:
    entry = move.entry
    whole = entry.id in full
    steps = full[entry.id] if whole else move.steps
    outbound = entry.outbound if move.outbound is None else move.outbound[:NAME_CHARACTERS]
    return Changed(
        entry.id,
        entry.generation,
        entry.state,
        entry.outbound,
        move.to.value,
        outbound,
        move.due_at,
        now if move.due_at is None else None,
        _kept(move.routed_count, entry.routed_count),
        _kept(move.retry_times, entry.retry_times),
        _kept(move.group_retry_times, entry.group_retry_times),
        _kept(move.rules_version, entry.rules_version),
        move.reason[:40],
        writable(move.detail, 500),
        None if move.item is None else item_text(move.item),
        write_steps(steps),
        whole,
        len(steps),
    )


def _after(move: Move, row: Changed) -> Entry:
    before = move.entry
    return Entry(
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


def _kept(value: int | None, before: int) -> int:
    return before if value is None else value


def _cut_chains(moves: list[Move]) -> dict[int, list[Step]]:
    """The whole new chains of those items whose chains have grown too long."""
    if not moves:
        return {}
    rows = RoutedItem.objects.filter(pk__in=[move.entry.id for move in moves]).order_by("id")
    before = dict(locked(rows).values_list("id", "steps"))
    return {
        move.entry.id: cut([*read_steps(before.get(move.entry.id, "")), *move.steps])
        for move in moves
    }


class Note(msgspec.Struct, frozen=True):
    """Something that is worth a step and changes nothing, such as a result that came too late."""

    entry: Entry
    step: Step


def note_items(*, notes: Sequence[Note]) -> int:
    """Add steps to items, ended ones too, without moving them; returns how many were written.

    Late results are counted in the books.
    """
    if not notes:
        return 0
    return in_short_transaction(partial(_note, list(notes)))


def _note(notes: list[Note]) -> int:
    rows = locked(RoutedItem.objects.filter(pk__in={n.entry.id for n in notes}).order_by("id"))
    standing = {row.pk: row for row in rows.only("id", "steps", "step_count")}
    written = 0
    counted: Counter[Key] = Counter()
    for note in notes:
        row = standing.get(note.entry.id)
        if row is None:
            continue
        steps = cut([*read_steps(row.steps), note.step])
        row.steps, row.step_count = write_steps(steps), len(steps)
        written += 1
        if note.step.kind == StepKind.LATE_RESULT:
            key = (note.entry.project, note.entry.inbound, note.entry.outbound)
            counted[(*key, Counted.LATE_RESULT.value)] += 1
    RoutedItem.objects.bulk_update(standing.values(), ["steps", "step_count"], batch_size=200)
    tally(counted)
    return written
