"""Stores what processes have counted: each report once, at three lengths of time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.db import DatabaseError, OperationalError, transaction
from django.db.models import Exists, OuterRef

from apps.queuestats.engine.senders import ClockSkew, ReceivedNumbers
from apps.queuestats.models import Sample, SampleSender, Series
from apps.queuestats.queries.series import KEPT_SECONDS, OBSERVED, SeriesKey
from apps.queuestats.services.rejections import RejectedReport
from apps.queuestats.services.series_readings import SeriesReading, add_readings
from apps.queuestats.services.upsert import Upsert
from apps.runtime.services import in_short_transaction
from yardkit import failpoints
from yardkit.errors import first_line
from yardkit.protocol import SampleKind, SampleNote, Samples

# A report may come again so long after the last one of its sender, and is still known.
SENDERS_KEPT: Final = timedelta(days=7)
SERIES_A_STATEMENT: Final = 200
# 2^53: beyond it a float counts no more.
MOST: Final = 9_007_199_254_740_992
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")

_SENDER_VALUES: Final = {
    "seq": "bigint",
    "missing": "jsonb",
    "skew_base": "float8",
    "skew_steady": "bigint",
    "behind_seconds": "float8",
    "heard_at": "timestamptz",
}
_SENDERS: Final = Upsert(
    table="queuestats_samplesender",
    columns={"boot": "text", "sender": "text", **_SENDER_VALUES},
    key=("boot",),
    change=", ".join(f"{name} = excluded.{name}" for name in _SENDER_VALUES),
)


def store_samples(*, messages: Sequence[Samples], now: datetime) -> list[RejectedReport]:
    """Add a batch of reports; one that comes again, or late, changes no sum (seed S4.24, S4.25).

    A sender's own seconds are kept. Only a clock that is wrong by more than 5 s is corrected, see
    ``engine.heard.ClockSkew``. Returns what cannot be stored, for the caller to refuse. Numbers of
    projects that do not exist are left out.

    Raises:
        DatabaseError: the database is away; nothing is added.
    """
    refused = [RejectedReport(m, reason) for m in messages if (reason := _fault(m))]
    bad = {id(one.message) for one in refused}
    good = [message for message in messages if id(message) not in bad]
    if not good:
        return refused
    try:
        in_short_transaction(lambda: _store(good, now))
    except OperationalError:
        raise
    except (DatabaseError, ValueError, OverflowError) as error:
        if len(good) == 1:
            return [
                *refused,
                RejectedReport(good[0], f"{type(error).__name__}: {first_line(error)}"),
            ]
        half = len(good) // 2
        refused += store_samples(messages=good[:half], now=now)
        refused += store_samples(messages=good[half:], now=now)
    return refused


@transaction.atomic
def record_gauges(readings: Mapping[tuple[str, int | None, str], float], *, now: datetime) -> None:
    """Note how much there is: by (series, project, label). For who has the database at hand."""
    second = int(now.timestamp())
    add_readings(
        (SeriesKey(*key), SampleKind.GAUGE, second, 1, value, 1, value)
        for key, value in readings.items()
        if math.isfinite(value)
    )


@transaction.atomic
def record_observed_seconds(*, since: int, until: int) -> None:
    """Reports of the seconds from ``since`` up to ``until`` could arrive.

    So that a second without any number is told apart from one that nobody heard of.
    """
    seconds = range(max(since, until - KEPT_SECONDS[1]), until)
    add_readings((OBSERVED, SampleKind.SUM, second, 1, 1.0, 1, 0.0) for second in seconds)


def prune_series(*, now: datetime) -> int:
    """Delete samples that are too old for their length, and senders that are gone; how many.

    Series without any sample are deleted too.
    """
    deleted = 0
    ids = list(Series.objects.order_by("pk").values_list("pk", flat=True))
    for start in range(0, len(ids), SERIES_A_STATEMENT):
        some = ids[start : start + SERIES_A_STATEMENT]
        for step, kept in KEPT_SECONDS.items():
            rows = Sample.objects.filter(
                series_id__in=some, step=step, second__lt=int(now.timestamp()) - kept
            )
            deleted += rows._raw_delete(rows.db)
    _forget_runs()
    # One row of each is enough to know: else this would read the whole table.
    used = Exists(Sample.objects.filter(series_id=OuterRef("pk")))
    Series.objects.filter(~used).delete()
    SampleSender.objects.filter(heard_at__lt=now - SENDERS_KEPT).delete()
    return deleted


def _forget_runs() -> None:
    """Series of single runs go with their minutes: of what lasted an hour nobody asks by run."""
    recent = Exists(Sample.objects.filter(series_id=OuterRef("pk"), step=60))
    old = Series.objects.filter(~recent, name__startswith="run.").values_list("pk", flat=True)
    ids = list(old)
    for start in range(0, len(ids), SERIES_A_STATEMENT):
        rows = Sample.objects.filter(series_id__in=ids[start : start + SERIES_A_STATEMENT])
        rows._raw_delete(rows.db)


def _fault(message: Samples) -> str:
    """Why this report cannot be stored; "" when it can."""
    if not 0 < message.seq < MOST or not math.isfinite(message.sent_at):
        return "the number or the time of the report is impossible"
    if not 0 < len(message.boot) <= 32 or len(message.sender) > 200 or "\0" in message.sender:
        return "no sender has such a name"
    for note in message.samples:
        if reason := _note_fault(note):
            return f"series {note.series[:80]!r}: {reason}"
    return ""


def _note_fault(note: SampleNote) -> str:
    if note.spread not in KEPT_SECONDS or not 0 <= note.second < MOST or note.second % note.spread:
        return "no such time"
    if len(note.series) > 64 or not _NAME.fullmatch(note.series):
        return "no such name"
    if len(note.label) > 64 or "\0" in note.label or not 0 <= note.project < MOST:
        return "no such label or project"
    if not (math.isfinite(note.value) and math.isfinite(note.highest)) or abs(note.value) > MOST:
        return "no such number"
    if not 0 < note.count < MOST or (note.kind is SampleKind.SUM and note.value < 0):
        return "no such count"
    return ""


def _store(messages: Sequence[Samples], now: datetime) -> None:
    senders = _senders(messages, now)
    readings: list[SeriesReading] = []
    at = now.timestamp()
    for message in messages:
        row, heard, skew = senders[message.boot]
        if not heard.is_new(message.seq):
            continue
        shift = skew.correction(at - message.sent_at)
        row.heard_at = now
        readings += (
            (
                SeriesKey(note.series, note.project or None, note.label),
                note.kind,
                max(0, note.second + shift),
                note.spread,
                note.value,
                note.count,
                note.highest,
            )
            for note in message.samples
        )
    add_readings(readings)
    for row, heard, skew in senders.values():
        row.seq, row.missing = heard.seq, sorted(heard.missing)
        row.skew_base, row.skew_steady = skew.base, skew.steady
        row.behind_seconds = skew.behind_seconds
    _SENDERS.write(
        [[getattr(row, name) for name in _SENDERS.columns] for row, _h, _s in senders.values()]
    )
    failpoints.hit("queuestats.before_commit")


def _senders(
    messages: Sequence[Samples], now: datetime
) -> dict[str, tuple[SampleSender, ReceivedNumbers, ClockSkew]]:
    """Return the rows of the reports' senders, locked until the commit.

    New rows are inserted before any is locked, both in the order of the key: a writer that locks
    known rows first and then waits for another's insert ends in a deadlock.
    """
    names = {message.boot: message.sender for message in messages}
    rows = SampleSender.objects.filter(boot__in=names)
    known = set(rows.values_list("boot", flat=True))
    SampleSender.objects.bulk_create(
        (
            SampleSender(sender=names[boot], boot=boot, heard_at=now)
            for boot in sorted(names.keys() - known)
        ),
        ignore_conflicts=True,
    )
    locked = {row.boot: row for row in rows.select_for_update().order_by("boot")}
    return {
        boot: (
            row,
            ReceivedNumbers(row.seq, set(row.missing)),
            ClockSkew(row.skew_base, row.skew_steady),
        )
        for boot, row in locked.items()
    }
