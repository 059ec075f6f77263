"""Writes counters so that a repeated, late or reordered report changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, OperationalError, transaction
from django.db.models import F

from apps.jobs.queries import RunFacts, run_facts
from apps.queuestats.events import COUNTERS_CHANGED
from apps.queuestats.models import CenterCounter, FailedRequest, RunCounter
from apps.queuestats.queries import CENTER_SUMMED, SUMMED, books_of, center_books_of
from apps.queuestats.services.refusing import Refused, first_line
from apps.runtime.services import emit
from yardkit import failpoints
from yardkit.protocol import CenterCounters, RunCounters

# So long after its last report a run that has ended will not report any more.
LAST_REPORT_SECONDS = 15.0

Report = RunCounters | CenterCounters


def store_counters(*, messages: Sequence[Report], now: datetime) -> list[Refused]:
    """Write a batch of reports (seed S1.17, S1.51).

    Returns what cannot be stored, for the caller to refuse: a report of a run that does not
    exist, or one with figures no database holds, which must not take the others with it.

    Raises:
        DatabaseError: the database is away; nothing is written.
    """
    try:
        return _store(messages, now)
    except OperationalError:
        raise
    except (DatabaseError, ValueError, OverflowError) as error:
        if len(messages) == 1:
            return [Refused(messages[0], f"{type(error).__name__}: {first_line(error)}")]
    return [one for message in messages for one in store_counters(messages=[message], now=now)]


@transaction.atomic
def _store(messages: Sequence[Report], now: datetime) -> list[Refused]:
    facts = run_facts(message.run for message in messages)
    refused: list[Refused] = []
    of_runs: dict[tuple[int, str], RunCounters] = {}
    of_centers: dict[tuple[int, str], CenterCounters] = {}
    failures: list[FailedRequest] = []
    for message in messages:
        if message.run not in facts:
            refused.append(Refused(message, f"run {message.run} does not exist"))
        elif isinstance(message, RunCounters):
            failures += _failures(message, facts[message.run], now)
            _keep_newest(of_runs, message)
        else:
            _keep_newest(of_centers, message)
    # Always in the same order, so that two of these do not wait for each other.
    for key in sorted(of_runs):
        _write_run(of_runs[key], facts[key[0]], now)
    for key in sorted(of_centers):
        _write_center(of_centers[key], now)
    # The same note may come twice: (owner, boot, seq) is unique, the second is dropped.
    FailedRequest.objects.bulk_create(failures, ignore_conflicts=True, batch_size=500)
    failpoints.hit("queuestats.before_commit")
    _tell({run for run, _boot in (*of_runs, *of_centers)}, facts)
    return refused


@transaction.atomic
def close_books(*, now: datetime) -> int:
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
        _tell({runs[pk] for pk in ended}, facts)
    return closed


def _keep_newest(newest: dict[tuple[int, str], Any], message: Report) -> None:
    key = (message.run, message.boot)
    if key not in newest or newest[key].seq < message.seq:
        newest[key] = message


def _write_run(message: RunCounters, facts: RunFacts, now: datetime) -> None:
    values: dict[str, Any] = {name: getattr(message, name) for name in SUMMED}
    values |= {"agents": message.agents, "final": message.final}
    values |= {"seq": message.seq, "updated_at": now}
    row, created = RunCounter.objects.get_or_create(
        owner=f"run:{message.run}",
        boot=message.boot,
        defaults=values | {"project_id": facts.project},
    )
    if not created:
        RunCounter.objects.filter(pk=row.pk, seq__lt=message.seq).update(**values)


def _write_center(message: CenterCounters, now: datetime) -> None:
    values: dict[str, Any] = {name: getattr(message, name) for name in CENTER_SUMMED}
    values |= {"seq": message.seq, "updated_at": now}
    row, created = CenterCounter.objects.get_or_create(
        owner=f"run:{message.run}", boot=message.boot, defaults=values
    )
    if not created:
        CenterCounter.objects.filter(pk=row.pk, seq__lt=message.seq).update(**values)


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


def _tell(runs: set[int], facts: dict[int, RunFacts]) -> None:
    owners = [f"run:{run}" for run in runs]
    books, centers = books_of(owners), center_books_of(owners)
    for run, owner in zip(runs, owners, strict=True):
        emit(
            COUNTERS_CHANGED,
            project=facts[run].project,
            payload={"run": run} | books[owner].as_dict() | {"center": centers[owner].as_dict()},
        )
