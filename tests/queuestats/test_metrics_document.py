"""docs/metrics.md names every metric, and no other."""

from __future__ import annotations

from pathlib import Path

from apps.queuestats.queries.queues import IN, OUT
from apps.queuestats.services.increases import RATES

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def test_every_rate_is_told() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    names = [f"{what}.{name}" for what in ("run", "job") for name in RATES]
    assert [name for name in (*names, IN, OUT) if f"`{name}`" not in text] == []
