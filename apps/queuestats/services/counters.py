"""Writes counters so that a repeated, late or reordered report changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from django.db import DatabaseError, OperationalError, transaction
from django.db.models import F

from apps.jobs.queries import RunFacts, run_facts
from apps.queuestats.events import COUNTERS_CHANGED
from apps.queuestats.models import FailedRequest, RunCounter
from apps.queuestats.queries import CENTER_SUMMED, SUMMED, center_totals, run_totals
from apps.queuestats.queries.totals import BY_AGENT, sum_of
from apps.queuestats.services.increases import JOB_SUMMED, CounterIncrease, add_increases
from apps.queuestats.services.rejections import RejectedReport
from apps.queuestats.services.upsert import Upsert
from apps.runtime.services import emit, in_short_transaction
from yardkit import failpoints
from yardkit.errors import first_line
from yardkit.protocol import CenterCounters, RunCounters

# So long after its last report a run that has ended will not report any more.
LAST_REPORT_SECONDS = 15.0
# The SDK counts no more; this is for reports of somebody else's making.
MOST_FIELDS = 200

_SET: Final = "{name} = excluded.{name}"
_RUN_VALUES: Final = {
    "seq": "bigint",
    **dict.fromkeys(SUMMED, "bigint"),
    **dict.fromkeys(BY_AGENT, "jsonb"),
    "fields": "jsonb",
    "final": "boolean",
    "updated_at": "timestamptz",
}
_RUNS: Final = Upsert(
    table="queuestats_runcounter",
    columns={"owner": "text", "boot": "text", "project_id": "bigint", **_RUN_VALUES},
    key=("owner", "boot"),
    change=", ".join(_SET.format(name=name) for name in _RUN_VALUES),
    only_where="queuestats_runcounter.seq < excluded.seq",
)
_CENTER_VALUES: Final = {
    "seq": "bigint",
    **dict.fromkeys(CENTER_SUMMED, "bigint"),
    "updated_at": "timestamptz",
}
_CENTERS: Final = Upsert(
    table="queuestats_centercounter",
    columns={"owner": "text", "boot": "text", **_CENTER_VALUES},
    key=("owner", "boot"),
    change=", ".join(_SET.format(name=name) for name in _CENTER_VALUES),
    only_where="queuestats_centercounter.seq < excluded.seq",
)

Report = RunCounters | CenterCounters


def store_counters(*, messages: Sequence[Report], now: datetime) -> list[RejectedReport]:
    """Write a batch of reports (seed S1.17, S1.51).

    Returns what cannot be stored, for the caller to refuse: a report of a run that does not
    exist, or one with figures no database holds, which must not take the others with it.

    Raises:
        DatabaseError: the database is away; nothing is written.
    """
    try:
        return in_short_transaction(lambda: _store(messages, now))
    except OperationalError:
        raise
    except (DatabaseError, ValueError, OverflowError) as error:
        if len(messages) == 1:
            return [RejectedReport(messages[0], f"{type(error).__name__}: {first_line(error)}")]
    # By halves: one bad report among two thousand costs some twenty tries more.
    half = len(messages) // 2
    return [
        *store_counters(messages=messages[:half], now=now),
        *store_counters(messages=messages[half:], now=now),
    ]


def _store(messages: Sequence[Report], now: datetime) -> list[RejectedReport]:
    facts = run_facts(message.run for message in messages)
    refused: list[RejectedReport] = []
    of_runs: dict[tuple[int, str], RunCounters] = {}
    of_centers: dict[tuple[int, str], CenterCounters] = {}
    failures: list[FailedRequest] = []
    for message in messages:
        if message.run not in facts:
            refused.append(RejectedReport(message, f"run {message.run} does not exist"))
        elif isinstance(message, RunCounters):
            failures += _failures(message, facts[message.run], now)
            _keep_newest(of_runs, message)
        else:
            _keep_newest(of_centers, message)
    rows, grown = _write_runs(of_runs, facts, now)
    _write_centers(of_centers, now)
    # The same note may come twice: (owner, boot, seq) is unique, the second is dropped.
    FailedRequest.objects.bulk_create(failures, ignore_conflicts=True, batch_size=500)
    add_increases(grown, now=now)
    failpoints.hit("queuestats.before_commit")
    _tell({run for run, _boot in (*of_runs, *of_centers)}, facts, rows)
    return refused


@transaction.atomic
def finalize_counters(*, now: datetime) -> int:
    """Declare the last report of a run final that was killed before it could say so itself.

    What was out is cancelled with it. Returns how many were closed. Should the run live after
    all, its next report opens them.
    """
    silent_since = now - timedelta(seconds=LAST_REPORT_SECONDS)
    open_ones = RunCounter.objects.filter(final=False, updated_at__lt=silent_since)
    runs = {
        pk: int(owner.removeprefix("run:")) for pk, owner in open_ones.values_list("pk", "owner")
    }
    facts = run_facts(runs.values())
    ended = [pk for pk, run in runs.items() if run in facts and not facts[run].active]
    closed = open_ones.filter(pk__in=ended).update(
        final=True, cancelled=F("cancelled") + F("out"), out=0, held=0
    )
    if closed:
        _tell({runs[pk] for pk in ended}, facts, {})
    return closed


def _keep_newest(newest: dict[tuple[int, str], Any], message: Report) -> None:
    key = (message.run, message.boot)
    if key not in newest or newest[key].seq < message.seq:
        newest[key] = message


def _write_runs(
    messages: Mapping[tuple[int, str], RunCounters], facts: Mapping[int, RunFacts], now: datetime
) -> tuple[dict[str, list[RunCounter]], list[CounterIncrease]]:
    """Every execution of these runs by owner, and what they have done since they last reported.

    Four statements, however many runs; one more where a report is the first of its execution.
    """
    if not messages:
        return {}, []
    rows = _locked(messages, facts, now)
    changed: list[RunCounter] = []
    grown: list[CounterIncrease] = []
    for (run, boot), message in messages.items():
        row = rows[f"run:{run}", boot]
        if row.seq >= message.seq:
            continue
        grown.append(
            CounterIncrease(
                run=run,
                job=facts[run].job,
                project=facts[run].project,
                since=row.updated_at if row.seq >= 0 else None,
                amounts={name: getattr(message, name) - getattr(row, name) for name in JOB_SUMMED},
            )
        )
        for name in SUMMED:
            setattr(row, name, getattr(message, name))
        for name in BY_AGENT:
            setattr(row, name, getattr(message, name))
        row.final = message.final
        row.fields = dict(islice(message.fields.items(), MOST_FIELDS))
        row.seq, row.updated_at = message.seq, now
        changed.append(row)
    _RUNS.write([[getattr(row, name) for name in _RUNS.columns] for row in changed])
    by_owner: dict[str, list[RunCounter]] = {}
    for row in rows.values():
        by_owner.setdefault(row.owner, []).append(row)
    return by_owner, grown


def _locked(
    messages: Mapping[tuple[int, str], RunCounters], facts: Mapping[int, RunFacts], now: datetime
) -> dict[tuple[str, str], RunCounter]:
    """Return every execution's row of these runs, locked until the commit.

    New rows are inserted before any is locked, both in the order of the key: a writer that locks
    known rows first and then waits for another's insert ends in a deadlock.
    """
    rows = RunCounter.objects.filter(owner__in={f"run:{run}" for run, _boot in messages})
    known = set(rows.values_list("owner", "boot"))
    RunCounter.objects.bulk_create(
        (
            RunCounter(
                owner=f"run:{run}",
                boot=boot,
                project_id=facts[run].project,
                seq=-1,
                updated_at=now,
            )
            for run, boot in sorted(messages, key=lambda key: (f"run:{key[0]}", key[1]))
            if (f"run:{run}", boot) not in known
        ),
        ignore_conflicts=True,
        batch_size=500,
    )
    locked = rows.select_for_update().order_by("owner", "boot")
    return {(row.owner, row.boot): row for row in locked}


def _write_centers(messages: Mapping[tuple[int, str], CenterCounters], now: datetime) -> None:
    _CENTERS.write(
        [
            (
                f"run:{run}",
                boot,
                message.seq,
                *(getattr(message, name) for name in CENTER_SUMMED),
                now,
            )
            for (run, boot), message in messages.items()
        ]
    )


def _failures(message: RunCounters, facts: RunFacts, now: datetime) -> list[FailedRequest]:
    return [
        FailedRequest(
            project_id=facts.project,
            owner=f"run:{message.run}",
            boot=message.boot,
            seq=note.seq,
            url=note.url,
            # SQLite would leave out a row that breaks a rule without a word.
            status=note.status if 0 <= note.status < 1000 else 0,
            reason=note.reason,
            at=now,
        )
        for note in message.failures
    ]


def _tell(
    runs: set[int], facts: Mapping[int, RunFacts], known: Mapping[str, Sequence[RunCounter]]
) -> None:
    """``known``: the executions of some of these runs, by owner; the others are read."""
    owners = [f"run:{run}" for run in runs]
    totals = run_totals(owner for owner in owners if owner not in known)
    totals |= {owner: sum_of(rows) for owner, rows in known.items()}
    centers = center_totals(owners)
    for run, owner in zip(runs, owners, strict=True):
        emit(
            COUNTERS_CHANGED,
            project=facts[run].project,
            payload={"run": run} | totals[owner].as_dict() | {"center": centers[owner].as_dict()},
        )
