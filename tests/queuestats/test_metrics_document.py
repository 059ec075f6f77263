"""docs/metrics.md names every metric, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from apps.queuestats.queries.queues import IN, OUT
from apps.queuestats.services.growth import RATES
from yardkit import metrics

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
_ROW = re.compile(r"^\| `([a-z_.]+)` \| (\w+)(, none is 0)? \| (.*?) \| (.*) \|$", re.MULTILINE)


def test_every_metric_is_told() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    told = {
        name: (kind, bool(zero), tuple(re.findall(r"`(\w+)`", labels)), meaning)
        for name, kind, zero, labels, meaning in _ROW.findall(text)
    }
    there = {
        each.name: (each.kind, each.absent_is_zero, each.labels, each.help)
        for each in metrics.described()
    }
    assert told.keys() - there.keys() == set()
    assert there.keys() - told.keys() == set()
    assert told == there


def test_every_rate_is_told() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    names = [f"{what}.{name}" for what in ("run", "job") for name in RATES]
    assert [name for name in (*names, IN, OUT) if f"`{name}`" not in text] == []
