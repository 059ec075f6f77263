"""Frontiers and operations to test with."""

from __future__ import annotations

from itertools import count
from typing import Any

from apps.projects.models import Project
from apps.seeds.models import Frontier, Operation
from apps.seeds.states import OperationKind
from tests.access.factories import make_project

_numbers = count(1)


def make_frontier(project: Project | None = None, **fields: Any) -> Frontier:
    """One with a name of its own: days in UTC, whole keys."""
    values = {"project": project or make_project(), "name": f"frontier-{next(_numbers)}"}
    return Frontier.objects.create(**(values | fields))


def make_operation(frontier: Frontier | None = None, **fields: Any) -> Operation:
    """One that waits; nobody has been told of it."""
    values = {"frontier": frontier or make_frontier(), "kind": OperationKind.WIPE}
    return Operation.objects.create(**(values | fields))
