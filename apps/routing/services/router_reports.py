"""Status reports of router processes: write, delete, expire."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from apps.routing.models import RouterReport

# Retention of the reports of a router that stopped reporting.
KEPT: Final = timedelta(hours=1)


def report_router(
    *, router: str, reports: Mapping[int, tuple[int, Mapping[str, Any]]], now: datetime
) -> None:
    """Insert or replace this router's report for each project.

    ``reports`` maps a project id to the active rules version and to the report data of
    ``engine.reports.Reports``.
    """
    RouterReport.objects.bulk_create(
        (
            RouterReport(
                router=router, project_id=project, rules_version=version, at=now, reports=lines
            )
            for project, (version, lines) in reports.items()
        ),
        update_conflicts=True,
        unique_fields=["router", "project"],
        update_fields=["rules_version", "at", "reports"],
    )


def delete_reports(*, router: str) -> None:
    """Delete the reports of a router that has stopped."""
    RouterReport.objects.filter(router=router).delete()


def delete_old_reports(*, now: datetime) -> int:
    """Delete reports older than an hour, left by routers that were killed; return how many."""
    return RouterReport.objects.filter(at__lt=now - KEPT).delete()[0]
