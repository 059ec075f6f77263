"""Stores log lines so that a repeated or late batch changes nothing, and forgets old ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import DataError, IntegrityError, connection, transaction
from django.db.models import F, Value
from django.db.models.functions import Greatest

from apps.joblogs.engine.lines import BIGGEST_SEQ, BadLines, Line, check_boot, owner_of, read_line
from apps.joblogs.events import LOG_GREW
from apps.joblogs.models import LogLine, LogStream
from apps.joblogs.queries import projects_of
from apps.runtime.services import emit
from yardkit import failpoints
from yardkit.protocol import LogBatch

# One statement deletes at most so many lines, and one call of ``prune_lines`` so many statements.
CHUNK: Final = 2000
CHUNKS: Final = 50

_COLUMNS: Final = {
    "project_id": "bigint",
    "stream": "text",
    "boot": "text",
    "seq": "bigint",
    "at": "timestamptz",
    "level": "text",
    "source": "text",
    "text": "text",
}


@dataclass(frozen=True, slots=True)
class Refused:
    """A batch that cannot be stored, and why."""

    batch: LogBatch
    reason: str


@dataclass(slots=True)
class _Execution:
    """What several batches say of one execution, put together."""

    dropped: int = 0
    lines: dict[int, Line] = field(default_factory=dict)


def store_lines(*, batches: Sequence[LogBatch], now: datetime) -> list[Refused]:
    """Write the lines of these batches, each line once (seed S1.18).

    Returns what cannot be stored, for the caller to refuse: lines of a run or build that does not
    exist, or something no log can hold, which must not take the others with it.

    Raises:
        DatabaseError: the database is away or not as it should be; nothing is written.
    """
    try:
        return _store(batches, now)
    except (DataError, IntegrityError, ValueError, OverflowError) as error:
        if len(batches) == 1:
            line = (str(error).strip().splitlines() or [""])[0]
            return [Refused(batches[0], f"{type(error).__name__}: {line}")]
    return [one for batch in batches for one in store_lines(batches=[batch], now=now)]


@transaction.atomic
def _store(batches: Sequence[LogBatch], now: datetime) -> list[Refused]:
    refused: list[Refused] = []
    executions: dict[tuple[str, str], _Execution] = {}
    for batch in batches:
        try:
            _add(executions, batch, now)
        except BadLines as error:
            refused.append(Refused(batch, str(error)))
    projects = projects_of({stream for stream, _boot in executions})
    for batch in batches:
        if (batch.stream, batch.boot) in executions and batch.stream not in projects:
            refused.append(Refused(batch, f"{batch.stream} does not exist"))
    # Always in the same order, so that two of these do not wait for each other.
    known = sorted(key for key in executions if key[0] in projects)
    for key in known:
        _note(key, executions[key], projects[key[0]], now)
    _insert([row for key in known for row in _rows(key, executions[key], projects[key[0]])])
    failpoints.hit("joblogs.before_commit")
    for stream in sorted({stream for stream, _boot in known}):
        emit(LOG_GREW, project=projects[stream], payload={"stream": stream})
    return refused


def _add(executions: dict[tuple[str, str], _Execution], batch: LogBatch, now: datetime) -> None:
    owner_of(batch.stream)
    check_boot(batch.boot)
    if not 0 <= batch.dropped <= BIGGEST_SEQ:
        raise BadLines(f"dropped is {batch.dropped}")
    lines = {record.seq: read_line(record, now) for record in batch.lines}
    execution = executions.setdefault((batch.stream, batch.boot), _Execution())
    execution.dropped = max(execution.dropped, batch.dropped)
    execution.lines = lines | execution.lines


def _note(key: tuple[str, str], execution: _Execution, project: int, now: datetime) -> None:
    """Write down how far this execution's lines have come."""
    last = max(execution.lines, default=0)
    row, created = LogStream.objects.get_or_create(
        stream=key[0],
        boot=key[1],
        defaults={
            "project_id": project,
            "dropped": execution.dropped,
            "last_seq": last,
            "updated_at": now,
        },
    )
    if not created:
        LogStream.objects.filter(pk=row.pk).update(
            dropped=Greatest(F("dropped"), Value(execution.dropped)),
            last_seq=Greatest(F("last_seq"), Value(last)),
            updated_at=now,
        )


def _rows(key: tuple[str, str], execution: _Execution, project: int) -> Iterator[tuple[Any, ...]]:
    stream, boot = key
    for seq in sorted(execution.lines):
        line = execution.lines[seq]
        yield project, stream, boot, seq, line.at, line.level, line.source, line.text


def _insert(rows: list[tuple[Any, ...]]) -> None:
    """Insert values of ``_COLUMNS``; of a line that is there already, nothing.

    Without the model: making its objects and looking at each of their fields would take several
    times as long as the database does.
    """
    if not rows:
        return
    table, columns = LogLine._meta.db_table, ", ".join(_COLUMNS)
    once = "ON CONFLICT (stream, boot, seq) DO NOTHING"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            arrays = ", ".join(f"%s::{kind}[]" for kind in _COLUMNS.values())
            values = [list(column) for column in zip(*rows, strict=True)]
            cursor.execute(
                f"INSERT INTO {table} ({columns}) SELECT * FROM unnest({arrays}) {once}",  # noqa: S608 - names of our own
                values,
            )
            return
        adapt, at = connection.ops.adapt_datetimefield_value, list(_COLUMNS).index("at")
        places = ", ".join(["%s"] * len(_COLUMNS))
        cursor.executemany(
            f"INSERT INTO {table} ({columns}) VALUES ({places}) {once}",  # noqa: S608 - names of our own
            [(*row[:at], adapt(row[at]), *row[at + 1 :]) for row in rows],
        )


def prune_lines(*, now: datetime, days: int) -> int:
    """Delete the lines of earlier days, oldest first and at most 100,000 in one call.

    Returns how many were deleted. Lines are looked at in the order in which they were stored, so
    that no index on time is needed.
    """
    cutoff = now - timedelta(days=days)
    total = 0
    for _ in range(CHUNKS):
        oldest = list(LogLine.objects.order_by("id").values_list("id", "at")[:CHUNK])
        young = next((pk for pk, at in oldest if at >= cutoff), None)
        old = [pk for pk, _at in oldest if young is None or pk < young]
        if not old:
            break
        rows = LogLine.objects.filter(id__gte=old[0], id__lte=old[-1], at__lt=cutoff)
        total += rows.delete()[0]
        if young is not None:
            break
    LogStream.objects.silent_since(cutoff).delete()
    return total
