"""A process with the seed service's settings that answers a test's questions, one JSON line each.

Starting Django for each question would take longer than most of the tests.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def frontier(*, name: str, **fields: Any) -> int:
    """A new frontier in a project of its own; its number."""
    from apps.projects.models import Project
    from apps.seeds.models import Frontier

    project = Project.objects.create(slug=name, name=name)
    return Frontier.objects.create(project=project, name=name, **fields).pk


def change(*, number: int, **fields: Any) -> None:
    """Change a frontier as a page does."""
    from apps.seeds.models import Frontier

    found = Frontier.objects.get(pk=number)
    for name, value in fields.items():
        setattr(found, name, value)
    found.save()


def reported(*, number: int) -> dict[str, Any]:
    """What the service last reported of all segments together."""
    from django.db.models import Sum

    from apps.seeds.models import SegmentReport

    names = ("added", "duplicates", "pending", "leased", "succeeded", "failed", "ignored")
    rows = SegmentReport.objects.filter(frontier=number)
    return rows.aggregate(**{name: Sum(name, default=0) for name in names})


QUESTIONS = {each.__name__: each for each in (frontier, change, reported)}


def answer(question: str, arguments: dict[str, Any]) -> Any:
    """Asked once more of a database that has dropped its connections since the last question."""
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
