"""Stores counter reports idempotently: a repeated, late or reordered report changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from django.db import transaction
from django.db.models import F

from apps.jobs.queries import RunFacts, run_facts
from apps.queuestats.events import COUNTERS_CHANGED
from apps.queuestats.models import FailedRequest, RunCounter, RunStats
from apps.queuestats.queries import CENTER_SUMMED, SUMMED, center_totals, run_totals
from apps.queuestats.queries.totals import BY_AGENT, sum_of
from apps.queuestats.services.increases import JOB_SUMMED, CounterIncrease, add_increases
from apps.queuestats.services.rejections import RejectedReport, store_batch
from apps.queuestats.services.upsert import Upsert
from apps.runtime.services import emit
from yardkit import failpoints
from yardkit.protocol import CenterCounters, PageCounters, RunCounters

# An ended run whose last report is older than this sends no further ones.
LAST_REPORT_SECONDS = 15.0
# Limit of counted item fields. The SDK has the same; this one is for foreign clients.
MAX_FIELDS = 200
# Limit of statistics of a run's framework.
MAX_STATS = 1000
# Limit of reasons why pages are not kept.
MAX_REASONS = 50

_SET: Final = "{name} = excluded.{name}"
_RUN_VALUES: Final = {
    "seq": "bigint",
    **dict.fromkeys(SUMMED, "bigint"),
    **dict.fromkeys(BY_AGENT, "jsonb"),
    "fields": "jsonb",
    "dropped": "jsonb",
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

_PAGE_VALUES: Final = {
    "seq": "bigint",
    "chosen": "bigint",
    "not_kept": "jsonb",
    "updated_at": "timestamptz",
}
_PAGES: Final = Upsert(
    table="queuestats_pagecounter",
    columns={"owner": "text", "boot": "text", **_PAGE_VALUES},
    key=("owner", "boot"),
    change=", ".join(_SET.format(name=name) for name in _PAGE_VALUES),
    only_where="queuestats_pagecounter.seq < excluded.seq",
)

Report = RunCounters | CenterCounters | PageCounters


def store_counters(*, messages: Sequence[Report], now: datetime) -> list[RejectedReport]:
    """Store a batch of counter reports.

    Return the reports to dead-letter: those of unknown runs, and those with numbers out of the
    database's range.

    Raises:
        OperationalError, InterfaceError: the database is unreachable; nothing is written.
    """
    return store_batch(messages, lambda batch: _store(batch, now))


def _store(messages: Sequence[Report], now: datetime) -> list[RejectedReport]:
    facts = run_facts(message.run for message in messages)
    rejected: list[RejectedReport] = []
    of_runs: dict[tuple[int, str], RunCounters] = {}
    of_centers: dict[tuple[int, str], CenterCounters] = {}
    of_pages: dict[tuple[int, str], PageCounters] = {}
    failures: list[FailedRequest] = []
    for message in messages:
        if isinstance(message, PageCounters) and message.dataset and not message.run:
            _keep_newest(of_pages, message)
        elif message.run not in facts:
            rejected.append(RejectedReport(message, f"run {message.run} does not exist"))
        elif isinstance(message, RunCounters):
            failures += _failures(message, facts[message.run], now)
            _keep_newest(of_runs, message)
        elif isinstance(message, PageCounters):
            _keep_newest(of_pages, message)
        else:
            _keep_newest(of_centers, message)
    rows, increases = _write_runs(of_runs, facts, now)
    _write_centers(of_centers, now)
    _write_pages(of_pages, now)
    _write_stats(of_runs, facts, now)
    # A redelivered note conflicts with its unique (owner, boot, seq) and is ignored.
    FailedRequest.objects.bulk_create(failures, ignore_conflicts=True, batch_size=500)
    add_increases(increases, now=now)
    failpoints.hit("queuestats.before_commit")
    changed = {run for run, _boot in (*of_runs, *of_centers, *of_pages) if run in facts}
    _publish_changes(changed, facts, rows)
    return rejected


@transaction.atomic
def finalize_counters(*, now: datetime) -> int:
    """Mark the counters of ended runs as final where the run was killed before its last report.

    Attempts still in flight become cancelled. Return the number of rows changed. If the run is
    alive after all, its next report clears the mark.
    """
    silent_since = now - timedelta(seconds=LAST_REPORT_SECONDS)
    unfinished = RunCounter.objects.filter(final=False, updated_at__lt=silent_since)
    runs = {
        pk: int(owner.removeprefix("run:")) for pk, owner in unfinished.values_list("pk", "owner")
    }
    facts = run_facts(runs.values())
    ended = [pk for pk, run in runs.items() if run in facts and not facts[run].active]
    closed = unfinished.filter(pk__in=ended).update(
        final=True, cancelled=F("cancelled") + F("out"), out=0, held=0
    )
    if closed:
        _publish_changes({runs[pk] for pk in ended}, facts, {})
    return closed


def _keep_newest(newest: dict[tuple[int, str], Any], message: Report) -> None:
    key = (message.run, message.boot)
    if key not in newest or newest[key].seq < message.seq:
        newest[key] = message


def _write_runs(
    messages: Mapping[tuple[int, str], RunCounters], facts: Mapping[int, RunFacts], now: datetime
) -> tuple[dict[str, list[RunCounter]], list[CounterIncrease]]:
    """Store the newest report of each execution; return all executions by owner, and the increases.

    Four statements for any number of runs, plus one when an execution reports for the first time.
    """
    if not messages:
        return {}, []
    rows = _locked(messages, facts, now)
    changed: list[RunCounter] = []
    increases: list[CounterIncrease] = []
    for (run, boot), message in messages.items():
        row = rows[f"run:{run}", boot]
        if row.seq >= message.seq:
            continue
        increases.append(
            CounterIncrease(
                run=run,
                job=facts[run].job,
                project=facts[run].project,
                since=row.updated_at if row.seq >= 0 else None,
                amounts={name: getattr(message, name) - getattr(row, name) for name in JOB_SUMMED},
                is_replay=bool(facts[run].replay.run),
            )
        )
        for name in SUMMED:
            setattr(row, name, getattr(message, name))
        for name in BY_AGENT:
            setattr(row, name, getattr(message, name))
        row.final = message.final
        row.fields = dict(islice(message.fields.items(), MAX_FIELDS))
        row.dropped = dict(islice(message.dropped.items(), MAX_FIELDS))
        row.seq, row.updated_at = message.seq, now
        changed.append(row)
    _RUNS.write([[getattr(row, name) for name in _RUNS.columns] for row in changed])
    by_owner: dict[str, list[RunCounter]] = {}
    for row in rows.values():
        by_owner.setdefault(row.owner, []).append(row)
    return by_owner, increases


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
                owner=f"run:{run}", boot=boot, project_id=facts[run].project, seq=-1, updated_at=now
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


def _write_pages(messages: Mapping[tuple[int, str], PageCounters], now: datetime) -> None:
    _PAGES.write(
        [
            (
                f"run:{run}" if run else f"dataset:{message.dataset}",
                boot,
                message.seq,
                message.chosen,
                dict(islice(message.not_kept.items(), MAX_REASONS)),
                now,
            )
            for (run, boot), message in messages.items()
        ]
    )


def _write_stats(
    messages: Mapping[tuple[int, str], RunCounters], facts: Mapping[int, RunFacts], now: datetime
) -> None:
    """Store the statistics of the newest execution of each run; later reports have higher numbers.

    A restarted run's execution replaces that before it: its numbers begin again. A report of an
    execution before it may arrive later, and replaces nothing.
    """
    latest: dict[int, RunCounters] = {}
    for (run, boot), message in messages.items():
        if message.stats and (run not in latest or boot == facts[run].boot):
            latest[run] = message
    if not latest:
        return
    known = (
        RunStats.objects.select_for_update().order_by("run_id").in_bulk(latest, field_name="run_id")
    )
    rows = [
        RunStats(
            run_id=run,
            project_id=facts[run].project,
            boot=message.boot,
            seq=message.seq,
            stats=dict(islice(message.stats.items(), MAX_STATS)),
            updated_at=now,
        )
        for run, message in latest.items()
        if run not in known or _is_newer(message, known[run], facts[run])
    ]
    RunStats.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["run"],
        update_fields=["boot", "seq", "stats", "updated_at"],
    )


def _is_newer(message: RunCounters, stored: RunStats, facts: RunFacts) -> bool:
    if message.boot == stored.boot:
        return message.seq > stored.seq
    return message.boot == facts.boot


def _failures(message: RunCounters, facts: RunFacts, now: datetime) -> list[FailedRequest]:
    return [
        FailedRequest(
            project_id=facts.project,
            owner=f"run:{message.run}",
            boot=message.boot,
            seq=note.seq,
            url=note.url,
            # With ignore_conflicts SQLite silently skips a row that violates a constraint.
            status=note.status if 0 <= note.status < 1000 else 0,
            reason=note.reason,
            at=now,
        )
        for note in message.failures
    ]


def _publish_changes(
    runs: set[int], facts: Mapping[int, RunFacts], known: Mapping[str, Sequence[RunCounter]]
) -> None:
    """Emit one event per run; counters of owners that are not in ``known`` are read first."""
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
