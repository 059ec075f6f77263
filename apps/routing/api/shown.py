"""Inbounds and outbounds as they are shown: no secret is in them, and how they stand beside it."""

from __future__ import annotations

from typing import Any

from apps.routing.engine.files.data import inbound_data, outbound_data
from apps.routing.engine.files.diff import without_secrets
from apps.routing.engine.rules import Inbound, Outbound
from apps.routing.queries import InboundStatus, OutboundStatus


def inbound_shown(place: int, inbound: Inbound) -> dict[str, Any]:
    """Under the keys of a file; ``place`` counts from 1."""
    return {"place": place, **_plain(inbound_data(inbound))}


def outbound_shown(place: int, outbound: Outbound) -> dict[str, Any]:
    """The same."""
    return {"place": place, **_plain(outbound_data(outbound))}


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    shown = without_secrets(data)
    # Where it was read from: a file on somebody's disk.
    shown.pop("place", None)
    return shown


def inbound_standing(report: InboundStatus | None) -> dict[str, Any] | None:
    """What all living routers say of an inbound; None where none does."""
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
    """The same of an outbound."""
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
