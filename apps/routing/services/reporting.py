"""What routers tell of themselves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from apps.routing.models import RouterReport

# Of a router that has said nothing for so long nothing is kept.
KEPT: Final = timedelta(hours=1)


def report_lines(
    *, router: str, reports: Mapping[int, tuple[int, Mapping[str, Any]]], now: datetime
) -> None:
    """What this router says of each project: the version of its rules, and its lines."""
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


def forget_reports(*, router: str) -> None:
    """This router runs no more."""
    RouterReport.objects.filter(router=router).delete()


def forget_old_reports(*, now: datetime) -> int:
    """Those of routers that have gone without a word; how many."""
    return RouterReport.objects.filter(at__lt=now - KEPT).delete()[0]
