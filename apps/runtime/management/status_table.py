"""Output of ``--status``."""

from __future__ import annotations

from typing import Any

from apps.runtime.models import Daemon
from apps.runtime.queries import database_now, is_live

HEADINGS = ("NAME", "STATE", "HOST", "PID", "LAST SEEN", "UP", "STEPS", "ERROR")


def status_table(kind: str) -> tuple[str, int]:
    """Return a table of all known processes of ``kind``, and the number of living ones."""
    now = database_now()
    rows: list[tuple[str, ...]] = [HEADINGS]
    alive = 0
    for daemon in Daemon.objects.filter(kind=kind).order_by("name"):
        live = is_live(daemon, now=now)
        alive += live
        silent = daemon.state not in ("stopped", "failed") and not live
        rows.append(
            (
                daemon.name,
                f"silent ({daemon.state})" if silent else daemon.state,
                daemon.host,
                str(daemon.pid),
                f"{_span((now - daemon.beat_at).total_seconds())} ago",
                _span((now - daemon.started_at).total_seconds()) if live else "-",
                str(daemon.detail.get("steps", "-")),
                _error(daemon.detail)[:80],
            )
        )
    if len(rows) == 1:
        return f"no {kind} has ever run against this database", 0
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines), alive


def _error(detail: dict[str, Any]) -> str:
    away = detail.get("away") or {}
    parts = [f"{name}: {why}" for name, why in away.items()]
    return "; ".join([str(detail["error"])] if detail.get("error") else parts)


def _span(seconds: float) -> str:
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    return f"{whole // 3600} h" if whole < 172_800 else f"{whole // 86_400} d"
