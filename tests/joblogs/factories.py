"""Batches and lines to test with."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from apps.joblogs.models import ErrorGroup
from apps.joblogs.services import log_store, store_lines
from apps.joblogs.stores.base import Ref, StoredLine
from apps.jobs.models import Job
from apps.projects.models import Build
from tests.jobs.factories import make_project
from yardkit.protocol import LogBatch, LogRecord

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def make_build(**fields: Any) -> Build:
    """A build, in a project of its own unless one is given."""
    project = fields.pop("project", None) or make_project()
    return Build.objects.create(project=project, **({"tag": "v1", "created_at": NOW} | fields))


def make_group(job: Job, **fields: Any) -> ErrorGroup:
    """An error group of this job, with a fingerprint of its own."""
    number = ErrorGroup.objects.count()
    values = {
        "project": job.project,
        "job": job,
        "fingerprint": f"{number:016x}",
        "level": "ERROR",
        "sample": f"ERROR number {number}",
        "first_at": NOW,
        "last_at": NOW,
        "noted_at": NOW,
    }
    return ErrorGroup.objects.create(**(values | fields))


def record(seq: int, text: str = "", **fields: Any) -> LogRecord:
    """One line on its way; its time is the one at which it is stored, unless one is given."""
    values: dict[str, Any] = {"at": 0.0, "level": "", "source": "stdout"} | fields
    return LogRecord(seq=seq, text=text or f"line {seq}", **values)


def batch(stream: str, seqs: Iterable[int], boot: str = "b1", dropped: int = 0) -> LogBatch:
    """A message with these lines."""
    lines = [record(seq) for seq in seqs]
    return LogBatch(stream=stream, boot=boot, lines=lines, dropped=dropped)


def store_texts(
    stream: str, *texts: str, boot: str = "b1", now: datetime = NOW, **fields: Any
) -> list[StoredLine]:
    """These lines, stored; the whole log."""
    lines = [
        record(seq, text, **({"at": now.timestamp()} | fields)) for seq, text in enumerate(texts, 1)
    ]
    assert store_lines(batches=[LogBatch(stream=stream, boot=boot, lines=lines)], now=now) == []
    return whole_log(stream)


def whole_log(stream: str) -> list[StoredLine]:
    """Every line, by its place; from the end, where nothing is waited for."""
    found: list[StoredLine] = []
    place = Ref(10**9 - 1, 2**63 - 1)
    while lines := log_store().page(stream, before=place, limit=1000):
        found = lines + found
        place = lines[0].ref
    return found


def stored(stream: str) -> list[str]:
    """The texts of a stream, by their places."""
    return [line.text for line in whole_log(stream)]


def seqs(stream: str) -> list[int]:
    """The numbers of its lines, by their places."""
    return [line.ref.seq for line in whole_log(stream)]
