"""One process of a move: ``python -m tests.seeds.services.mover begin | work | show``.

Settings come from the environment: a data folder with a migrated database and the broker at which
the test's service answers.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta

import django


def begin() -> None:
    """A frontier by day with some seeds, and a move of it that waits for a worker."""
    from apps.projects.services.projects import default_project
    from apps.seeds.models import Frontier
    from apps.seeds.services import change_granularity, client_of
    from tests.seeds.services.test_granularity import DAY, MONDAY
    from yardkit.protocol import Seed

    frontier = Frontier.objects.create(project=default_project(), name="news")
    client = client_of(frontier)
    for day in range(3):
        client.add(
            Seed(f"http://host/{number}", active_at=MONDAY + day * DAY + 5)
            for number in range(10 * day, 10 * day + 15)
        )
    change_granularity(frontier, segments="week")


def work() -> None:
    """What a worker does after the sweep has found what the last one left."""
    from django.utils import timezone

    from apps.seeds.models import Operation
    from apps.seeds.services import operation_steps, sweep_operations, work_on_operation

    vars(operation_steps).update(MOVE_SLICE=4, SETTLE_SECONDS=0.0)
    sweep_operations(now=timezone.now() + timedelta(seconds=31))
    work_on_operation(Operation.objects.get().pk, seconds=60)


def show() -> None:
    """How far it is."""
    from apps.seeds.models import Operation

    operation = Operation.objects.select_related("frontier").get()
    frontier = operation.frontier
    print(
        json.dumps(
            {
                "state": operation.state,
                "error": operation.error,
                "phase": operation.arguments["phase"],
                "frozen": frontier.is_frozen,
                "segments": frontier.segments,
                "frontier": frontier.pk,
            }
        )
    )


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "crawlyard.settings.daemon"
    django.setup()
    {"begin": begin, "work": work, "show": show}[sys.argv[1]]()
