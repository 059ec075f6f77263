"""Batches and lines to test with."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from apps.joblogs.models import LogLine
from apps.joblogs.services import store_lines
from apps.projects.models import Build
from tests.jobs.factories import make_project
from yardkit.protocol import LogBatch, LogRecord

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def make_build(**fields: Any) -> Build:
    """A build, in a project of its own unless one is given."""
    project = fields.pop("project", None) or make_project()
    return Build.objects.create(project=project, **({"tag": "v1", "created_at": NOW} | fields))


def record(seq: int, text: str = "", **fields: Any) -> LogRecord:
    """One line on its way; its time is the one at which it is stored, unless one is given."""
    values = {"at": 0.0, "level": "", "source": "stdout"} | fields
    return LogRecord(seq=seq, text=text or f"line {seq}", **values)


def batch(stream: str, seqs: Iterable[int], boot: str = "b1", dropped: int = 0) -> LogBatch:
    """A message with these lines."""
    lines = [record(seq) for seq in seqs]
    return LogBatch(stream=stream, boot=boot, lines=lines, dropped=dropped)


def store_texts(stream: str, *texts: str, boot: str = "b1", **fields: Any) -> list[LogLine]:
    """These lines, stored."""
    lines = [record(seq, text, **fields) for seq, text in enumerate(texts, 1)]
    assert store_lines(batches=[LogBatch(stream=stream, boot=boot, lines=lines)], now=NOW) == []
    return list(LogLine.objects.filter(stream=stream, boot=boot).order_by("seq"))


def stored(stream: str) -> list[str]:
    """The texts of a stream, as they were stored."""
    return list(LogLine.objects.of(stream).order_by("id").values_list("text", flat=True))
