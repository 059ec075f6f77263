"""Stores reports of rates and gauges, each exactly once, and applies the retention of series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Exists, OuterRef

from apps.queuestats.engine.senders import ClockSkew, ReceivedNumbers
from apps.queuestats.models import Sample, SampleSender, Series
from apps.queuestats.queries.series import KEPT_SECONDS, OBSERVED, SeriesKey
from apps.queuestats.services.job_days import delete_old_days
from apps.queuestats.services.rejections import RejectedReport, store_batch
from apps.queuestats.services.series_readings import SeriesReading, add_readings
from apps.queuestats.services.upsert import Upsert
from yardkit import failpoints
from yardkit.names import SERIES
from yardkit.protocol import SampleKind, SampleNote, Samples

# How long the numbers of received reports are kept, to recognise redelivered ones.
SENDERS_KEPT: Final = timedelta(days=7)
SERIES_A_STATEMENT: Final = 200
# 2^53: above it a float cannot represent every integer.
MAX_NUMBER: Final = 9_007_199_254_740_992

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
    """Add a batch of reports; a redelivered one changes nothing.

    Seconds are those of the sender's clock; it is corrected when it is wrong by more than 5 s, see
    ``engine.senders.ClockSkew``. Readings of unknown projects are dropped. Return the reports to
    dead-letter.

    Raises:
        OperationalError, InterfaceError: the database is unreachable; nothing is added.
    """
    return store_batch(messages, lambda batch: _store(batch, now))


@transaction.atomic
def record_gauges(readings: Mapping[tuple[str, int | None, str], float], *, now: datetime) -> None:
    """Record gauges by (series, project, label) directly, for callers with database access."""
    second = int(now.timestamp())
    add_readings(
        (SeriesKey(*key), SampleKind.GAUGE, second, 1, value, 1, value)
        for key, value in readings.items()
        if math.isfinite(value)
    )


@transaction.atomic
def record_observed_seconds(*, since: int, until: int) -> None:
    """Record that reports of the seconds [since, until) could arrive.

    A missing sample in such a second means 0; in any other second the value is unknown.
    """
    seconds = range(max(since, until - KEPT_SECONDS[1]), until)
    add_readings((OBSERVED, SampleKind.SUM, second, 1, 1.0, 1, 0.0) for second in seconds)


def prune_series(*, now: datetime) -> int:
    """Delete samples past the retention of their resolution; return the number of samples deleted.

    Series without samples and senders not heard of for 7 days are deleted, too.
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
    _delete_runs()
    # EXISTS stops at the first row of a series; a join would read the whole table.
    used = Exists(Sample.objects.filter(series_id=OuterRef("pk")))
    Series.objects.filter(~used).delete()
    delete_old_days(now=now)
    SampleSender.objects.filter(heard_at__lt=now - SENDERS_KEPT).delete()
    return deleted


def _delete_runs() -> None:
    """Delete series of single runs together with their minutes: their hours are not used."""
    recent = Exists(Sample.objects.filter(series_id=OuterRef("pk"), step=60))
    old = Series.objects.filter(~recent, name__startswith="run.").values_list("pk", flat=True)
    ids = list(old)
    for start in range(0, len(ids), SERIES_A_STATEMENT):
        rows = Sample.objects.filter(series_id__in=ids[start : start + SERIES_A_STATEMENT])
        rows._raw_delete(rows.db)


def _validation_error(message: Samples) -> str:
    """Return why this report cannot be stored, or ""."""
    if not 0 < message.seq < MAX_NUMBER or not math.isfinite(message.sent_at):
        return f"seq {message.seq} or sent_at {message.sent_at} is out of range"
    if not 0 < len(message.boot) <= 32 or len(message.sender) > 200 or "\0" in message.sender:
        return f"invalid sender {message.sender[:80]!r} or boot {message.boot[:40]!r}"
    for note in message.samples:
        if reason := _sample_error(note):
            return f"series {note.series[:80]!r}: {reason}"
    return ""


def _sample_error(note: SampleNote) -> str:
    if (
        note.spread not in KEPT_SECONDS
        or not 0 <= note.second < MAX_NUMBER
        or note.second % note.spread
    ):
        return f"invalid time {note.second} or length {note.spread}"
    if not SERIES.fullmatch(note.series):
        return "invalid name"
    if len(note.label) > 64 or "\0" in note.label or not 0 <= note.project < MAX_NUMBER:
        return f"invalid label {note.label[:80]!r} or project {note.project}"
    if (
        not (math.isfinite(note.value) and math.isfinite(note.highest))
        or abs(note.value) > MAX_NUMBER
    ):
        return f"value {note.value} or {note.highest} is out of range"
    if not 0 < note.count < MAX_NUMBER or (note.kind is SampleKind.SUM and note.value < 0):
        return f"count {note.count} or value {note.value} is out of range"
    return ""


def _store(batch: Sequence[Samples], now: datetime) -> list[RejectedReport]:
    rejected = [RejectedReport(m, reason) for m in batch if (reason := _validation_error(m))]
    invalid = {id(report.message) for report in rejected}
    messages = [message for message in batch if id(message) not in invalid]
    if not messages:
        return rejected
    senders = _senders(messages, now)
    readings: list[SeriesReading] = []
    at = now.timestamp()
    for message in messages:
        row, received, skew = senders[message.boot]
        if not received.is_new(message.seq):
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
    for row, received, skew in senders.values():
        row.seq, row.missing = received.seq, sorted(received.missing)
        row.skew_base, row.skew_steady = skew.base, skew.steady
        row.behind_seconds = skew.behind_seconds
    _SENDERS.write(
        [
            [getattr(row, name) for name in _SENDERS.columns]
            for row, _received, _skew in senders.values()
        ]
    )
    failpoints.hit("queuestats.before_commit")
    return rejected


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
