"""Batches to store, in short."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from apps.joblogs.engine.lines import LogLine
from apps.joblogs.engine.moments import microseconds
from apps.joblogs.stores.base import LineBatch, LogStore, Search, StoredLine

# Long enough ago that nobody waits for lines that have been overtaken.
LONG_AGO = datetime(2026, 11, 20, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
ALL = Search(projects=None)


def line(
    seq: int,
    text: str = "",
    *,
    at: datetime | None = None,
    level: str = "INFO",
    source: str = "spider",
    fingerprint: str = "",
) -> LogLine:
    """By default written ``seq`` seconds after ``LONG_AGO``."""
    at = LONG_AGO + seq * SECOND if at is None else at
    return LogLine(seq, microseconds(at), level, source, text or f"line {seq}", fingerprint)


def batch(
    lines: Iterable[LogLine],
    *,
    stream: str = "run:7",
    boot: str = "b1",
    project: int = 1,
    job: int = 5,
    dropped: int = 0,
) -> LineBatch:
    return LineBatch(project, job, stream, boot, dropped, list(lines))


def seqs(lines: Iterable[StoredLine]) -> list[int]:
    return [one.ref.seq for one in lines]


def found(store: LogStore, text: str = "", **conditions: object) -> list[int]:
    """Seqs of what a search finds, the newest first."""
    search = Search(text=text, **({"projects": None} | conditions))  # type: ignore[arg-type]
    return seqs(store.search(search, limit=1000).lines)
