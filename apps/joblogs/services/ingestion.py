"""Stores log lines idempotently: repeated and late batches change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import DataError, IntegrityError, transaction

from apps.joblogs.engine.lines import (
    BIGGEST_SEQ,
    BadLines,
    LogLine,
    check_boot,
    owner_of,
    read_lines,
)
from apps.joblogs.events import LOG_GREW
from apps.joblogs.queries import Owner, owners_of
from apps.joblogs.services.groups import Sightings, note_errors
from apps.joblogs.services.store import log_store
from apps.joblogs.stores.base import LineBatch
from apps.runtime.services import emit
from yardkit import failpoints
from yardkit.errors import first_line
from yardkit.protocol import LogBatch


@dataclass(frozen=True, slots=True)
class RefusedBatch:
    """A batch that cannot be stored, and the reason."""

    batch: LogBatch
    reason: str


@dataclass(slots=True)
class _Execution:
    """Lines of one execution, merged from several batches."""

    dropped: int = 0
    # Duplicate line numbers are possible; the store keeps the first.
    lines: list[LogLine] = field(default_factory=list)


_Executions = dict[tuple[str, str], _Execution]


def store_lines(*, batches: Sequence[LogBatch], now: datetime) -> list[RefusedBatch]:
    """Store the lines of these batches, each line once.

    The log store is written first, then the error groups in the database. After a crash in between,
    both are repeated and no line is stored twice.

    Return the batches to reject: those of a run or build that does not exist, or with content that
    no store can hold. They do not affect the other batches.

    Raises:
        LogStoreUnavailable: lines already written may be sent again.
        DatabaseError: the database is unavailable.
    """
    try:
        return _store(batches, now)
    except (DataError, IntegrityError, ValueError, OverflowError) as error:
        if len(batches) == 1:
            line = first_line(error)
            return [RefusedBatch(batches[0], f"{type(error).__name__}: {line}")]
    return [rejected for batch in batches for rejected in store_lines(batches=[batch], now=now)]


def _store(batches: Sequence[LogBatch], now: datetime) -> list[RefusedBatch]:
    executions, refused = _read(batches, now)
    owners = owners_of({stream for stream, _boot in executions})
    for batch in batches:
        if (batch.stream, batch.boot) in executions and batch.stream not in owners:
            refused.append(RefusedBatch(batch, f"{batch.stream} does not exist"))
    # In a fixed order, so that concurrent ingesters do not deadlock.
    known = sorted(key for key in executions if key[0] in owners)
    failpoints.hit("joblogs.before_write")
    if known:
        log_store().write([_batch(key, executions[key], owners[key[0]]) for key in known], now=now)
    failpoints.hit("joblogs.after_write")
    with transaction.atomic():
        note_errors(_sightings(known, executions, owners), now=now)
        failpoints.hit("joblogs.before_commit")
        for stream in sorted({stream for stream, _boot in known}):
            emit(LOG_GREW, project=owners[stream].project, payload={"stream": stream})
    return refused


def _read(batches: Iterable[LogBatch], now: datetime) -> tuple[_Executions, list[RefusedBatch]]:
    executions: _Executions = {}
    refused = []
    for batch in batches:
        try:
            _add(executions, batch, now)
        except BadLines as error:
            refused.append(RefusedBatch(batch, str(error)))
    return executions, refused


def _add(executions: _Executions, batch: LogBatch, now: datetime) -> None:
    owner_of(batch.stream)
    check_boot(batch.boot)
    if not 0 <= batch.dropped <= BIGGEST_SEQ:
        raise BadLines(f"dropped is {batch.dropped}")
    lines = read_lines(batch.lines, now)
    execution = executions.setdefault((batch.stream, batch.boot), _Execution())
    execution.dropped = max(execution.dropped, batch.dropped)
    execution.lines += lines


def _batch(key: tuple[str, str], execution: _Execution, owner: Owner) -> LineBatch:
    return LineBatch(
        project=owner.project,
        job=owner.job,
        stream=key[0],
        boot=key[1],
        dropped=execution.dropped,
        lines=execution.lines,
    )


def _sightings(
    keys: Iterable[tuple[str, str]], executions: _Executions, owners: Mapping[str, Owner]
) -> Sightings:
    seen = Sightings()
    for key in keys:
        owner = owners[key[0]]
        for line in executions[key].lines:
            if line.fingerprint:
                seen.add(owner, line)
    return seen
