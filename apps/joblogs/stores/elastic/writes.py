"""Stores each line once; see ``stream_record`` for the three steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from apps.joblogs.engine.lines import BIGGEST_SEQ, LogLine
from apps.joblogs.stores.accounts import LEVEL_NUMBERS, Incoming, gathered
from apps.joblogs.stores.base import LineBatch
from apps.joblogs.stores.elastic.connection import CONFLICT, OK, BulkOperation, ElasticConnection
from apps.joblogs.stores.elastic.documents import create_line
from apps.joblogs.stores.elastic.indexes import IndexNames
from apps.joblogs.stores.elastic.stream_record import StreamRecord, WrittenLines
from apps.joblogs.stores.elastic.stream_records import StreamRecords, VersionedRecord
from yardkit import failpoints

_Streams = Mapping[str, Sequence[Incoming]]


def write(
    connection: ElasticConnection,
    records: StreamRecords,
    names: IndexNames,
    batches: Sequence[LineBatch],
    now: datetime,
) -> int:
    """Store lines; return how many were new. Raises ``LogStoreUnavailable`` and ``ValueError``."""
    # In a fixed order, so that concurrent writers collide at the first stream and not at the last.
    streams: dict[str, list[Incoming]] = {}
    for incoming in gathered(batches):
        _check(incoming)
        streams.setdefault(incoming.stream, []).append(incoming)

    def make(stream: str) -> StreamRecord:
        return StreamRecord(stream, streams[stream][0].project, streams[stream][0].job)

    existing = records.read(streams)
    known = {name: existing.get(name) or VersionedRecord(make(name)) for name in streams}
    records.change(known, lambda record: record.reserve(streams[record.stream], now), make=make)
    failpoints.hit("joblogs.elastic.reserved")
    taken, problem = _create_lines(connection, names, streams, known)
    failpoints.hit("joblogs.elastic.created")
    new: dict[str, int] = {}

    def take_over(record: StreamRecord) -> bool:
        new[record.stream] = record.take_over(taken[record.stream], now)
        return True

    records.change({name: known[name] for name in taken}, take_over)
    if problem:
        raise ValueError(problem)
    return sum(new.values())


def _check(incoming: Incoming) -> None:
    """Validate before anything is written, because a partial write cannot be rolled back."""
    for line in incoming.lines:
        name = f"line {line.seq} of {incoming.stream}"
        if not 1 <= line.seq <= BIGGEST_SEQ:
            raise ValueError(f"{name}: lines count from 1")
        if line.level not in LEVEL_NUMBERS:
            raise ValueError(f"{name}: {line.level!r} is no level")
        if not (line.text.isascii() and line.source.isascii()):
            # A lone surrogate cannot be encoded.
            (line.text + line.source).encode()


def _create_lines(
    connection: ElasticConnection,
    names: IndexNames,
    streams: _Streams,
    known: Mapping[str, VersionedRecord],
) -> tuple[dict[str, list[WrittenLines]], str]:
    """Create the lines that no record marks as stored.

    Return the results by stream, and the reason of the first rejection.
    """
    places: list[tuple[WrittenLines, LogLine]] = []
    operations: list[BulkOperation] = []
    taken: dict[str, list[WrittenLines]] = {}
    for name, executions in streams.items():
        record = known[name].record
        for incoming in executions:
            execution = record.execution(incoming.boot)
            new = execution.unknown(incoming.lines) if execution is not None else ()
            if execution is None or not new:
                continue
            mine = WrittenLines(incoming.boot)
            taken.setdefault(name, []).append(mine)
            for line in new:
                index = names.day(execution.day(line.seq))
                operations.append(create_line(index, record, execution, line))
                places.append((mine, line))
    problem = ""
    results = connection.bulk(operations)
    for (mine, line), result in zip(places, results, strict=True):
        # 409: stored by an earlier attempt that died before recording it.
        if result.status in OK or result.status == CONFLICT:
            mine.stored.append(line)
        else:
            mine.refused.append(line)
            problem = problem or f"line {line.seq} of {mine.boot}: {result.error}"
    return taken, problem
