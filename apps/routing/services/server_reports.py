"""Status reports of the HTTP servers that rule sets open in the web processes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from apps.routing.models import ServerReport

# Retention of the rows of processes that were killed.
_KEPT: Final = timedelta(hours=1)
_PROBLEM_CHARACTERS: Final = 500


@transaction.atomic
def report_servers(*, process: str, servers: Mapping[int, tuple[str, str]], now: datetime) -> None:
    """Insert or replace this process's report for each project; delete its other reports.

    ``servers`` maps a project id to (address, problem); the problem is "" when it listens.
    """
    mine = ServerReport.objects.filter(process=process)
    mine.exclude(project__in=list(servers)).delete()
    ServerReport.objects.filter(at__lt=now - _KEPT).delete()
    ServerReport.objects.bulk_create(
        [
            ServerReport(
                process=process,
                project_id=project,
                address=address,
                problem=problem[:_PROBLEM_CHARACTERS],
                at=now,
            )
            for project, (address, problem) in servers.items()
        ],
        update_conflicts=True,
        unique_fields=["process", "project"],
        update_fields=["address", "problem", "at"],
    )
