"""JSON of inbounds and outbounds for the REST API, without secrets, and of their status."""

from __future__ import annotations

from typing import Any

from apps.routing.engine.files.data import inbound_data, outbound_data
from apps.routing.engine.files.diff import without_secrets
from apps.routing.engine.rules import Inbound, Outbound
from apps.routing.queries import InboundStatus, OutboundStatus


def inbound_shown(place: int, inbound: Inbound) -> dict[str, Any]:
    """Return an inbound under the keys of a rules file; ``place`` counts from 1."""
    return {"place": place, **_plain(inbound_data(inbound))}


def outbound_shown(place: int, outbound: Outbound) -> dict[str, Any]:
    """Return an outbound under the keys of a rules file; ``place`` counts from 1."""
    return {"place": place, **_plain(outbound_data(outbound))}


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    shown = without_secrets(data)
    # Position in the source file, which may reveal a path on a user's disk.
    shown.pop("place", None)
    return shown


def inbound_standing(report: InboundStatus | None) -> dict[str, Any] | None:
    """Return the status of an inbound, merged from all live routers; None without a report."""
    if report is None:
        return None
    return {
        "problem": report.problem,
        "problem_at": report.problem_since,
        "depth": report.depth,
        "taken": report.taken,
        "filtered": report.filtered,
        "poison": report.poison,
        "late": report.late,
        "warnings": list(report.warnings),
    }


def outbound_standing(report: OutboundStatus | None) -> dict[str, Any] | None:
    """Return the status of an outbound, merged from all live routers; None without a report."""
    if report is None:
        return None
    return {
        "problem": report.problem,
        "problem_at": report.problem_since,
        "depth": report.depth,
        "full": report.full,
        "sent": report.sent,
        "refused": report.refused,
        "limit_degraded": report.limit_degraded,
        "selector_errors": report.selector_errors,
    }
