"""Helper process with the router's settings: executes commands of a test, one JSON line each.

Starting Django for each command would take longer than most of the tests.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def _project(slug: str) -> Any:
    from apps.projects.models import Project

    return Project.objects.get(slug=slug)


def use(*, slug: str, rules: dict[str, Any]) -> None:
    """Create a project and activate its rules."""
    from django.utils import timezone

    from apps.configcenter.services import activate, save_version
    from apps.projects.models import Project

    project = Project.objects.create(slug=slug, name=slug)
    data = {"version": 1, "needs": 1, "project": slug} | rules
    now = timezone.now()
    saved = save_version(kind="routing", project_id=project.pk, data=data, actor=None, now=now)
    activate(version=saved.version, actor=None, now=now)


def submit(*, slug: str, items: list[dict[str, Any]]) -> None:
    """Store items as the web process does, due at once for any router."""
    from django.utils import timezone

    from apps.routing.services import Arrival, receive_items

    project = _project(slug).pk
    arrivals = [Arrival(project=project, inbound="web", item=item) for item in items]
    receive_items(arrivals=arrivals, now=timezone.now(), lease_seconds=0)


def end_leases(*, slug: str) -> int:
    """Expire the leases of received items; return how many."""
    from django.utils import timezone

    from apps.routing.models import RoutedItem
    from apps.runtime.services import in_short_transaction

    rows = RoutedItem.objects.filter(project=_project(slug), state="received")
    # Routers update the same rows concurrently in another order, which can deadlock.
    return in_short_transaction(lambda: rows.update(due_at=timezone.now()))


def books(*, slug: str) -> dict[str, Any]:
    """Return the counters, compared with the stored items."""
    from apps.routing.queries import reconcile_items

    audit = reconcile_items(_project(slug).pk)
    found = audit.books
    return {
        "holds": audit.holds,
        "received": found.received,
        "redelivered": found.redelivered,
        "parked": found.parked,
        "states": {
            state: count for state, count in (found.final | found.in_flight).items() if count
        },
    }


def problems(*, slug: str) -> list[str]:
    """Return the problems that routers report for the outbounds."""
    from apps.routing.models import RouterReport

    reports = RouterReport.objects.filter(project=_project(slug)).values_list("reports", flat=True)
    return [
        said
        for report in reports
        for line in report.get("outbounds", {}).values()
        if (said := line.get("problem"))
    ]


def repeats(*, slug: str, names: list[str]) -> int:
    """Count the items with a step that explains why they were sent twice."""
    from apps.routing.models import RoutedItem

    rows = RoutedItem.objects.filter(project=_project(slug), task_uuid__in=names)
    # It was redelivered, or its lease expired.
    why = {"redelivered", "taken_over"}
    return sum(any(step.kind in why for step in row.story) for row in rows)


def cut() -> int:
    """Terminate all other connections to this database; return how many."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        (count,) = cursor.fetchone()
    return int(count)


QUESTIONS = {
    each.__name__: each for each in (use, submit, end_leases, books, problems, repeats, cut)
}


def answer(question: str, arguments: dict[str, Any]) -> Any:
    """Execute a command; retry once if the database has dropped the connection."""
    from django.db import InterfaceError, OperationalError, connection

    try:
        return QUESTIONS[question](**arguments)
    except (InterfaceError, OperationalError):
        connection.close()
        return QUESTIONS[question](**arguments)


def main() -> None:
    import django

    django.setup()
    for line in sys.stdin:
        question, arguments = json.loads(line)
        sys.stdout.write(json.dumps(answer(question, arguments)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
