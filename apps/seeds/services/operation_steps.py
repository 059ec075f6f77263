"""Executes one slice of an operation, by kind. A step returns whether the operation is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.seeds.engine.errors import InvalidFrontierSetting, SeedInUse, UnknownSegment
from apps.seeds.engine.seeds import LAST_TIME
from apps.seeds.engine.segments import segment_text
from apps.seeds.errors import BadArguments
from apps.seeds.models import Frontier, Operation
from apps.seeds.services.management import SLICE, manage, show_segments
from apps.seeds.states import OperationKind, OperationState
from apps.seeds.stores.base import MovedSlice, ReopenedSlice, Segment, SegmentCounts
from apps.seeds.stores.operations import (
    DropSegment,
    Grouping,
    MoveSlice,
    ReopenFailedSlice,
    ShowSegments,
    now_ms,
)
from yardkit.seeds import CallRefused

# Slice of a move; each seed is read and written twice.
MOVE_SLICE: Final = 1000
# Seconds within which every process of the seed service sees that a frontier is frozen.
SETTLE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.5


class OperationFailed(Exception):
    """The operation has failed; the text is shown to users."""


def read_arguments(
    frontier: Frontier, kind: str, arguments: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Validate the arguments of an operation. Raises ``BadArguments``."""
    match kind:
        case OperationKind.REOPEN_FAILED:
            target = arguments.get("target")
            if target is None:
                # Computed now and not when a worker starts: midnight may be between the two.
                target = _segment_of_now(frontier, now)
            return {
                "source": _segment(arguments, "source"),
                "target": _segment({"target": target}, "target"),
            }
        case OperationKind.DROP:
            return {
                "segment": _segment(arguments, "segment"),
                "leased_too": bool(arguments.get("leased_too")),
            }
        case OperationKind.WIPE:
            return {"leased_too": bool(arguments.get("leased_too"))}
        case OperationKind.MOVE if "grouping" in arguments:
            return {**arguments, "phase": "freeze"}
        case _:
            raise BadArguments(_("An operation of this kind cannot be started this way."))


def _segment(arguments: Mapping[str, Any], name: str) -> int:
    value = arguments.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < LAST_TIME:
        text = _("Expected the beginning of a segment in ms since 1970.")
        raise BadArguments(fields={name: [text]})
    return value


def _segment_of_now(frontier: Frontier, now: datetime) -> int:
    try:
        return frontier.rules().segments(int(now.timestamp() * 1000))
    except InvalidFrontierSetting as error:
        raise BadArguments(str(error)) from error


def _reopen_failed(operation: Operation) -> bool:
    arguments, result = operation.arguments, operation.result
    if operation.total is None:
        operation.total = _counts(operation, arguments["source"]).added
    done: ReopenedSlice = manage(
        operation.frontier,
        ReopenFailedSlice(
            arguments["source"],
            arguments["target"],
            bytes.fromhex(arguments.get("after", "")),
            SLICE,
        ),
    )
    _count(result, reopened=done.reopened, duplicates=done.duplicates)
    if done.after is None:
        operation.done = operation.total
        return True
    operation.done = min(operation.done + SLICE, operation.total)
    arguments["after"] = done.after.hex()
    return False


def _drop(operation: Operation) -> bool:
    segment = operation.arguments["segment"]
    if operation.total is None:
        operation.total = _seeds(_counts(operation, segment))
        return False
    try:
        books = _dropped(operation, segment)
    except CallRefused as error:
        if error.code != UnknownSegment.code:
            raise
        # A process dropped it and died before recording this.
        operation.done = operation.total
        return True
    operation.done = operation.total = _seeds(books)
    return True


def _wipe(operation: Operation) -> bool:
    """Delete one segment, including segments that an abandoned move has staged."""
    for staged in (False, True):
        segments = _segments(operation, staged=staged)
        if operation.total is None:
            operation.total = sum(_seeds(listed.books) for listed in segments)
        if not segments:
            continue
        try:
            books = _dropped(operation, segments[0].segment, staged=staged)
        except CallRefused as error:
            if error.code != UnknownSegment.code:
                raise
            return False
        operation.done += _seeds(books)
        operation.total = max(operation.total, operation.done)
        return False
    return True


def _dropped(operation: Operation, segment: int, *, staged: bool = False) -> SegmentCounts:
    leased_too = operation.arguments["leased_too"]
    books: SegmentCounts = manage(operation.frontier, DropSegment(segment, leased_too, staged))
    _count(operation.result, segments=1, seeds=_seeds(books), leased=books.leased)
    return books


# --- move --------------------------------------------------------------------------------------


def _move(operation: Operation) -> bool:
    """Execute one slice of a move: freeze, wait for leases, stage all seeds, put them back, set the
    rules.

    Seeds are staged beside the frontier, because a segment of the old rules and one of the new ones
    may begin at the same moment, and a key of one may belong to another seed in the other.
    """
    arguments = operation.arguments
    match arguments["phase"]:
        case "freeze":
            _freeze(operation)
            arguments["phase"] = "leases"
            arguments["settled_at"] = now_ms() + int(SETTLE_SECONDS * 1000)
        case "leases":
            _wait_for_leases(operation)
        case "out":
            _move_slice(operation, grouping_of(operation), "back")
        case "back":
            _move_slice(operation, None, "save")
        case "save":
            save_grouping(operation)
            return True
    return False


def _wait_for_leases(operation: Operation) -> None:
    arguments = operation.arguments
    time.sleep(max(0.0, min(_LOOK_SECONDS, (arguments["settled_at"] - now_ms()) / 1000)))
    if now_ms() < arguments["settled_at"]:
        return
    segments = _segments(operation)
    leased = sum(listed.books.leased for listed in segments)
    if leased and now_ms() >= arguments["wait_until"]:
        unfreeze(operation.frontier_id)
        text = _("%(count)d seeds are still leased; let their runs end, or wait longer")
        raise OperationFailed(text % {"count": leased})
    if leased:
        time.sleep(_LOOK_SECONDS)
        return
    staged = _segments(operation, staged=True)
    operation.total = sum(_seeds(listed.books) for listed in [*segments, *staged])
    arguments["phase"] = "out"


def _move_slice(operation: Operation, grouping: Grouping | None, then: str) -> None:
    arguments = operation.arguments
    segment = arguments.get("segment")
    if segment is None:
        left = _segments(operation, staged=grouping is None)
        if not left:
            arguments["phase"] = then
            return
        segment = left[0].segment
    after = bytes.fromhex(arguments.get("after", ""))
    try:
        moved: MovedSlice = manage(
            operation.frontier, MoveSlice(segment, grouping, after, MOVE_SLICE)
        )
    except CallRefused as error:
        if error.code == SeedInUse.code:
            # A process leased them before it saw the freeze; the lease ends as usual.
            time.sleep(_LOOK_SECONDS)
            return
        if error.code == UnknownSegment.code:
            # A process emptied it and died before recording this.
            moved = MovedSlice(0, 0, 0, None)
        elif error.retry_seconds or _segments(operation, staged=True):
            raise
        else:
            # Nothing has been moved yet, so the move can be abandoned.
            unfreeze(operation.frontier_id)
            raise OperationFailed(str(error)) from error
    arguments["segment"] = None if moved.after is None else segment
    arguments["after"] = "" if moved.after is None else moved.after.hex()
    # Each seed is moved twice, but colliding seeds only once.
    arguments["steps"] = arguments.get("steps", 0) + moved.moved + 2 * moved.met
    if grouping is not None:
        _count(operation.result, moved=moved.moved, met=moved.met, kept=moved.kept)
    if operation.total is not None:
        operation.done = min(arguments["steps"] // 2, operation.total)


def grouping_of(operation: Operation) -> Grouping:
    """Return the new rules of a move."""
    return Grouping(**operation.arguments["grouping"])


def save_grouping(operation: Operation) -> None:
    """Apply the new rules and unfreeze the frontier in one transaction."""
    Frontier.objects.filter(pk=operation.frontier_id).update(
        **operation.arguments["grouping"], is_frozen=False, updated_at=timezone.now()
    )
    operation.done = operation.total or 0


def freeze(frontier: int) -> None:
    """Stop adding and leasing seeds of the frontier."""
    Frontier.objects.filter(pk=frontier).update(is_frozen=True, updated_at=timezone.now())


@transaction.atomic
def _freeze(operation: Operation) -> None:
    """Freeze the frontier unless the operation has been cancelled."""
    rows = Operation.objects.select_for_update()
    if rows.filter(pk=operation.pk, state=OperationState.RUNNING).exists():
        freeze(operation.frontier_id)


def unfreeze(frontier: int) -> None:
    """Resume adding and leasing seeds of the frontier."""
    Frontier.objects.filter(pk=frontier).update(is_frozen=False, updated_at=timezone.now())


# --- helpers -----------------------------------------------------------------------------------


def _segments(operation: Operation, *, staged: bool = False) -> list[Segment]:
    if staged:
        segments: list[Segment] = manage(operation.frontier, ShowSegments(staged=True))
        return segments
    return show_segments(operation.frontier)


def _counts(operation: Operation, segment: int) -> SegmentCounts:
    for listed in _segments(operation):
        if listed.segment == segment:
            return listed.books
    raise OperationFailed(
        _("Segment %(segment)s does not exist.") % {"segment": segment_text(segment)}
    )


def _seeds(books: SegmentCounts) -> int:
    return books.added - books.forgotten


def _count(result: dict[str, Any], **counts: int) -> None:
    for name, count in counts.items():
        result[name] = result.get(name, 0) + count


STEPS: Final[dict[OperationKind, Callable[[Operation], bool]]] = {
    OperationKind.REOPEN_FAILED: _reopen_failed,
    OperationKind.DROP: _drop,
    OperationKind.WIPE: _wipe,
    OperationKind.MOVE: _move,
}
