"""Runs as CSV."""

from __future__ import annotations

import csv
from itertools import islice
from typing import Any, Final

from apps.jobs.models import Run
from apps.queuestats.queries import run_totals

_BATCH: Final = 500
_FIGURES: Final = ("items", "total", "success", "failed", "pages", "bytes_received")
_FIELDS: Final = (
    "state",
    "trigger",
    "requested_by",
    "host",
    "created_at",
    "started_at",
    "ended_at",
)


def write_runs(runs: Any, file: Any) -> None:
    """Write runs with their outcome and figures; two queries for each 500 runs."""
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(["run", "project", "job", "outcome", *_FIELDS, *_FIGURES, "reason"])
    rows = runs.iterator(_BATCH)
    while batch := list(islice(rows, _BATCH)):
        totals = run_totals(run.owner for run in batch)
        writer.writerows(_row(run, totals[run.owner]) for run in batch)


def _row(run: Run, totals: Any) -> list[Any]:
    values = [getattr(run, name) for name in _FIELDS]
    times = [value.isoformat() if hasattr(value, "isoformat") else value for value in values]
    texts = [run.job.project.name, run.job.name, run.outcome or "", *times]
    figures = [getattr(totals, name) for name in _FIGURES]
    return [run.pk, *map(_cell, texts), *figures, _cell(run.reason)]


def _cell(value: Any) -> str:
    """Return a text that a spreadsheet does not take for a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
