"""Items that the web process was sent: written down before it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache, partial

from django.conf import settings

from apps.routing.engine.failures import Failed, FailureFile, FailureFileError
from apps.routing.engine.files.placeholders import TooLong, fill
from apps.routing.engine.items import Item
from apps.routing.engine.life import status_of, uuid_of
from apps.routing.engine.outcomes import FINAL, Action, Decision, Reason
from apps.routing.engine.steps import Step, StepKind, step
from apps.routing.engine.submissions import MOST_TOLD, Entered, enter, web_entrances
from apps.routing.engine.track import Track
from apps.routing.errors import FailuresUnwritable, InboundDisabled, ItemChanged, ItemsRefused
from apps.routing.placeholders import placeholders
from apps.routing.queries import Counted, Entry, find_items, known_of
from apps.routing.services.moving import Move, Note, move_items, note_items
from apps.routing.services.receiving import Arrival, receive_items
from apps.routing.services.writing import Key, tally
from apps.routing.states import ItemState
from apps.routing.texts import ITEMS, told
from apps.runtime.services import in_short_transaction

# A router may move an item while its result comes in; so often it is looked at again.
_TRIES = 5


class Fate(StrEnum):
    """What became of one thing that was sent."""

    # A new item, in the ledger; a router takes it from there.
    ACCEPTED = "accepted"
    # No inbound of HTTP wants it: counted, and not kept.
    FILTERED = "filtered"
    # The result of an item, which it has moved.
    RESULT = "result"
    # A result of no consequence: the item has ended, or another attempt is on its way.
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of one thing that was sent, and why."""

    fate: Fate
    # "" where there is no item.
    task_uuid: str = ""
    inbound: str = ""
    # Where the item is now; "" where there is none.
    state: str = ""
    # Of a result: what was decided, for programs and for people.
    reason: str = ""
    text: str = ""


def submit_items(
    *, project: int, slug: str, track: Track, items: Sequence[Item], now: datetime
) -> list[Submitted]:
    """Take all of these or none, in one transaction; one answer for each, in order.

    New items are anybody's to route at once. A result ends its item, or has it sent again by a
    router.

    Raises:
        InboundDisabled
        ItemsRefused: the converters of no inbound can work on something.
        ItemChanged: routers move an item faster than its result can be written.
        FailuresUnwritable: the failure file takes no lines, so no item may fail.
    """
    entrances = web_entrances(track)
    if not entrances:
        raise InboundDisabled
    entered = [enter(entrances, item) for item in items]
    home = _Home(project, slug, track)
    work = partial(_submit, home, entrances[0].rule.name, entered, now)
    return in_short_transaction(work)


@dataclass(frozen=True, slots=True)
class _Home:
    """Whose items these are, and by which rules."""

    project: int
    slug: str
    track: Track


def _submit(home: _Home, first: str, entered: Sequence[Entered], now: datetime) -> list[Submitted]:
    project, track = home.project, home.track
    results = _results(project, entered)
    new: list[int] = []
    filtered: list[int] = []
    for number, each in enumerate(entered):
        if number not in results:
            (filtered if each.item is None else new).append(number)
    _refuse_poison({number: entered[number] for number in filtered})
    found = {number: Submitted(Fate.FILTERED) for number in filtered}
    arrivals = [_arrival(project, track, entered[number], now) for number in new]
    receipts = receive_items(arrivals=arrivals, now=now, lease_seconds=0)
    for number, receipt in zip(new, receipts, strict=True):
        entry = receipt.entry
        found[number] = Submitted(
            Fate.ACCEPTED, str(entry.task_uuid), entry.inbound, ItemState(entry.state).value
        )
    found |= _settle(home, results, now)
    counted: Counter[Key] = Counter()
    counted[project, first, "", Counted.FILTERED.value] += len(filtered)
    counted[project, first, "", Counted.RESULT.value] += len(results)
    tally(counted)
    return [found[number] for number in range(len(entered))]


def _results(project: int, entered: Sequence[Entered]) -> dict[int, tuple[Item, Entry]]:
    """Which of these are results of items that the ledger knows, by their place."""
    named: dict[int, tuple[Item, str]] = {}
    for number, each in enumerate(entered):
        item = each.first
        uuid = None if item is None or status_of(item) is None else uuid_of(item)
        if item is not None and uuid is not None:
            named[number] = (item, uuid)
    known = find_items(project=project, task_uuids=[uuid for _, uuid in named.values()])
    return {n: (item, known[uuid]) for n, (item, uuid) in named.items() if uuid in known}


def _refuse_poison(filtered: Mapping[int, Entered]) -> None:
    faults = [(n, each.poison) for n, each in filtered.items() if each.poison is not None]
    if faults:
        fields = {
            f"items.{n}": [f"{poison.code}: {told(ITEMS, poison.code, str(poison))}"]
            for n, poison in faults[:MOST_TOLD]
        }
        raise ItemsRefused(faults[0][1].code, fields)


def _arrival(project: int, track: Track, entered: Entered, now: datetime) -> Arrival:
    entrance = track.entrances.get(entered.inbound)
    steps: tuple[Step, ...] = ()
    if entrance is not None and len(entrance.chain):
        names = ", ".join(each.cls for each in entrance.chain.steps)
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
    home: _Home, results: Mapping[int, tuple[Item, Entry]], now: datetime
) -> dict[int, Submitted]:
    life = home.track.life()
    found: dict[int, Submitted] = {}
    waiting = dict(results)
    for _try in range(_TRIES):
        if not waiting:
            return found
        moves: dict[int, Move] = {}
        notes: list[Note] = []
        for number, (item, entry) in waiting.items():
            decision = life.decide(item, known_of(entry))
            found[number] = _told(decision, entry)
            if decision.action is Action.IGNORE:
                notes.append(Note(entry, _ignored(decision, entry, now)))
            else:
                moves[number] = _move(decision, entry, home.track.version, now)
        note_items(notes=notes)
        _write_failures(home, [*moves.values()], now)
        beaten = {id(move) for move in move_items(moves=[*moves.values()], now=now).beaten}
        # Somebody else was quicker, or the list holds two results of one item.
        again = {n: waiting[n] for n, move in moves.items() if id(move) in beaten}
        standing = find_items(
            project=home.project, task_uuids=[str(entry.task_uuid) for _, entry in again.values()]
        )
        waiting = {
            n: (item, standing[str(entry.task_uuid)])
            for n, (item, entry) in again.items()
            if str(entry.task_uuid) in standing
        }
    raise ItemChanged


def _told(decision: Decision, entry: Entry) -> Submitted:
    return Submitted(
        Fate.IGNORED if decision.action is Action.IGNORE else Fate.RESULT,
        str(entry.task_uuid),
        entry.inbound,
        decision.state.value,
        decision.reason.value,
        decision.text,
    )


def _ignored(decision: Decision, entry: Entry, now: datetime) -> Step:
    if decision.reason is Reason.LATE_RESULT:
        return step(now, StepKind.LATE_RESULT, entry.outbound, decision.status)
    return step(now, StepKind.RESULT, entry.outbound, _why(decision))


def _move(decision: Decision, entry: Entry, version: int, now: datetime) -> Move:
    """To its end, or to whoever sends it again."""
    ends = decision.state in FINAL
    if ends:
        kind = StepKind.ENDED
    else:
        kind = StepKind.RETRIED if decision.reason is Reason.RETRY else StepKind.MATCHED
    return Move(
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


# --- the failure file (seed S2.13) ----------------------------------------------------------------


def _write_failures(home: _Home, moves: Sequence[Move], now: datetime) -> None:
    """Before the moves are committed, as routers do: no line is missing, one may be there twice."""
    rule = home.track.rules.failure
    failed = [_failed(home.slug, move, now) for move in moves if move.to == ItemState.FAILED]
    if rule is None or not failed:
        return
    try:
        path, unknown = fill(rule.path, placeholders(home.slug))
        if unknown:
            raise FailuresUnwritable
        _failure_file(path, rule.compress).write(failed)
    except (FailureFileError, TooLong) as error:
        raise FailuresUnwritable from error


@lru_cache(maxsize=64)
def _failure_file(path: str, compress: bool) -> FailureFile:
    return FailureFile(path, folders=settings.ROUTING_FAILURE_DIRS, compress=compress)


def _failed(slug: str, move: Move, now: datetime) -> Failed:
    item = move.item or {}
    return Failed(
        task_uuid=str(move.entry.task_uuid),
        project=slug,
        inbound=move.entry.inbound,
        outbound=move.outbound or "",
        state=move.to.value,
        reason=move.reason,
        detail=move.detail,
        status=status_of(item) or "",
        at=now,
        item=item,
    )
