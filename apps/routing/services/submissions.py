"""Store items and results submitted over HTTP before the request is answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache, partial

from django.conf import settings

from apps.routing.engine.failures import FailureFile, FailureFileError
from apps.routing.engine.files.placeholders import TextTooLong, fill
from apps.routing.engine.items import Item
from apps.routing.engine.life import status_of, uuid_of
from apps.routing.engine.outcomes import FINAL, Action, Decision, Reason
from apps.routing.engine.steps import Step, StepKind, step
from apps.routing.engine.submissions import MOST_TOLD, ConvertedItem, enter, web_entrances
from apps.routing.engine.track import Track
from apps.routing.errors import FailuresUnwritable, InboundDisabled, InvalidItems, ItemChanged
from apps.routing.placeholders import placeholders
from apps.routing.queries import CountedEvent, LedgerEntry, find_items, known_item
from apps.routing.services.arrivals import Arrival, receive_items
from apps.routing.services.ledger import CounterKey, add_counts
from apps.routing.services.moves import ItemMove, ItemNote, failure_record, move_items, note_items
from apps.routing.states import ItemState
from apps.routing.texts import ITEMS, translated
from apps.runtime.services import in_short_transaction

# Retries of a result whose item a router moves at the same time.
_TRIES = 5


class SubmissionStatus(StrEnum):
    """Outcome of one submitted item or result; the values are part of the REST API."""

    # Stored as a new item, for any router to claim.
    ACCEPTED = "accepted"
    # No HTTP inbound accepts it: counted, not stored.
    FILTERED = "filtered"
    # A result that moved its item.
    RESULT = "result"
    # A result without effect: the item has ended, or a later attempt is in progress.
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class SubmissionResult:
    """Answer for one submitted item or result."""

    fate: SubmissionStatus
    # "" for filtered ones, here and in ``inbound`` and ``state``.
    task_uuid: str = ""
    inbound: str = ""
    # State of the item after the submission.
    state: str = ""
    # For a result, the reason of the decision: a code, and a text for users.
    reason: str = ""
    text: str = ""


def submit_items(
    *, project: int, slug: str, track: Track, items: Sequence[Item], now: datetime
) -> list[SubmissionResult]:
    """Store all items and results in one transaction; return one answer for each, in order.

    New items are due at once for any router. A result ends its item, or has a router retry it.

    Raises:
        InboundDisabled: every HTTP inbound of the rules is disabled.
        InvalidItems: an item cannot be converted by any inbound; nothing was stored.
        ItemChanged: a router moved an item during every attempt to write its result.
        FailuresUnwritable: the failure file cannot be written, so no item may fail.
    """
    entrances = web_entrances(track)
    if not entrances:
        raise InboundDisabled
    entered = [enter(entrances, item) for item in items]
    scope = _Scope(project, slug, track)
    work = partial(_submit, scope, entrances[0].rule.name, entered, now)
    return in_short_transaction(work)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The project of the submitted items, and its rules."""

    project: int
    slug: str
    track: Track


def _submit(
    scope: _Scope, first: str, entered: Sequence[ConvertedItem], now: datetime
) -> list[SubmissionResult]:
    project, track = scope.project, scope.track
    results = _results(project, entered)
    new: list[int] = []
    filtered: list[int] = []
    for number, submission in enumerate(entered):
        if number not in results:
            (filtered if submission.item is None else new).append(number)
    _refuse_invalid({number: entered[number] for number in filtered})
    answers = {number: SubmissionResult(SubmissionStatus.FILTERED) for number in filtered}
    arrivals = [_arrival(project, track, entered[number], now) for number in new]
    receipts = receive_items(arrivals=arrivals, now=now, lease_seconds=0)
    for number, receipt in zip(new, receipts, strict=True):
        entry = receipt.entry
        answers[number] = SubmissionResult(
            SubmissionStatus.ACCEPTED,
            str(entry.task_uuid),
            entry.inbound,
            ItemState(entry.state).value,
        )
    answers |= _settle(scope, results, now)
    counted: Counter[CounterKey] = Counter()
    counted[project, first, "", CountedEvent.FILTERED.value] += len(filtered)
    counted[project, first, "", CountedEvent.RESULT.value] += len(results)
    add_counts(counted)
    return [answers[number] for number in range(len(entered))]


def _results(project: int, entered: Sequence[ConvertedItem]) -> dict[int, tuple[Item, LedgerEntry]]:
    """Return the submissions that are results of known items, by their index."""
    named: dict[int, tuple[Item, str]] = {}
    for number, submission in enumerate(entered):
        item = submission.first
        uuid = None if item is None or status_of(item) is None else uuid_of(item)
        if item is not None and uuid is not None:
            named[number] = (item, uuid)
    known = find_items(project=project, task_uuids=[uuid for _, uuid in named.values()])
    return {n: (item, known[uuid]) for n, (item, uuid) in named.items() if uuid in known}


def _refuse_invalid(filtered: Mapping[int, ConvertedItem]) -> None:
    faults = [
        (n, submission.poison)
        for n, submission in filtered.items()
        if submission.poison is not None
    ]
    if faults:
        fields = {
            f"items.{n}": [f"{poison.code}: {translated(ITEMS, poison.code, str(poison))}"]
            for n, poison in faults[:MOST_TOLD]
        }
        raise InvalidItems(faults[0][1].code, fields)


def _arrival(project: int, track: Track, entered: ConvertedItem, now: datetime) -> Arrival:
    entrance = track.entrances.get(entered.inbound)
    steps: tuple[Step, ...] = ()
    if entrance is not None and len(entrance.chain):
        names = ", ".join(converter.cls for converter in entrance.chain.steps)
        steps = (step(now, StepKind.CONVERTED, "", names),)
    return Arrival(
        project=project,
        inbound=entered.inbound,
        item=entered.item or {},
        rules_version=track.version,
        steps=steps,
    )


# --- results --------------------------------------------------------------------------------------


def _settle(
    scope: _Scope, results: Mapping[int, tuple[Item, LedgerEntry]], now: datetime
) -> dict[int, SubmissionResult]:
    life = scope.track.life()
    answers: dict[int, SubmissionResult] = {}
    waiting = dict(results)
    for _try in range(_TRIES):
        if not waiting:
            return answers
        moves: dict[int, ItemMove] = {}
        notes: list[ItemNote] = []
        for number, (item, entry) in waiting.items():
            decision = life.decide(item, known_item(entry))
            answers[number] = _result(decision, entry)
            if decision.action is Action.IGNORE:
                notes.append(ItemNote(entry, _ignored(decision, entry, now)))
            else:
                moves[number] = _move(decision, entry, scope.track.version, now)
        note_items(notes=notes)
        _write_failures(scope, [*moves.values()], now)
        lost = {id(move) for move in move_items(moves=[*moves.values()], now=now).lost}
        # A router moved the item first, or the list holds two results of one item.
        again = {n: waiting[n] for n, move in moves.items() if id(move) in lost}
        current = find_items(
            project=scope.project, task_uuids=[str(entry.task_uuid) for _, entry in again.values()]
        )
        waiting = {
            n: (item, current[str(entry.task_uuid)])
            for n, (item, entry) in again.items()
            if str(entry.task_uuid) in current
        }
    raise ItemChanged


def _result(decision: Decision, entry: LedgerEntry) -> SubmissionResult:
    return SubmissionResult(
        SubmissionStatus.IGNORED if decision.action is Action.IGNORE else SubmissionStatus.RESULT,
        str(entry.task_uuid),
        entry.inbound,
        decision.state.value,
        decision.reason.value,
        decision.text,
    )


def _ignored(decision: Decision, entry: LedgerEntry, now: datetime) -> Step:
    if decision.reason is Reason.LATE_RESULT:
        return step(now, StepKind.LATE_RESULT, entry.outbound, decision.status)
    return step(now, StepKind.RESULT, entry.outbound, _why(decision))


def _move(decision: Decision, entry: LedgerEntry, version: int, now: datetime) -> ItemMove:
    """Return the move that ends the item, or makes it due now for a router to send again."""
    ends = decision.state in FINAL
    if ends:
        kind = StepKind.ENDED
    else:
        kind = StepKind.RETRIED if decision.reason is Reason.RETRY else StepKind.MATCHED
    return ItemMove(
        entry=entry,
        to=ItemState(decision.state.value),
        due_at=None if ends else now,
        outbound=decision.outbound,
        steps=(
            step(now, StepKind.RESULT, entry.outbound, decision.status),
            step(now, kind, decision.outbound, _why(decision)),
        ),
        item=decision.item,
        routed_count=decision.counters.routed_count,
        retry_times=decision.counters.retry_times,
        group_retry_times=decision.counters.group_retry_times,
        rules_version=version,
        reason=decision.reason.value,
        detail=decision.text,
    )


def _why(decision: Decision) -> str:
    return f"{decision.reason.value} {decision.status}".rstrip()


# --- the failure file -----------------------------------------------------------------------------


def _write_failures(scope: _Scope, moves: Sequence[ItemMove], now: datetime) -> None:
    """Append failed items to the failure file before their moves are committed.

    After a crash in between a line may occur twice, but none is missing.
    """
    rule = scope.track.rules.failure
    failed = [
        failure_record(move, slug=scope.slug, status=status_of(move.item or {}) or "", now=now)
        for move in moves
        if move.to == ItemState.FAILED
    ]
    if rule is None or not failed:
        return
    try:
        path, unknown = fill(rule.path, placeholders(scope.slug))
        if unknown:
            raise FailuresUnwritable
        _failure_file(path, rule.compress).write(failed)
    except (FailureFileError, TextTooLong) as error:
        raise FailuresUnwritable from error


@lru_cache(maxsize=64)
def _failure_file(path: str, compress: bool) -> FailureFile:
    return FailureFile(path, folders=settings.ROUTING_FAILURE_DIRS, compress=compress)
