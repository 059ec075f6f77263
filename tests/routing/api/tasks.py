"""The seed's task, its submission and its results."""

from __future__ import annotations

import json
from typing import Any

from apps.access.states import Role
from apps.projects.models import Project
from apps.routing.models import RoutedItem
from apps.routing.queries import find_items
from apps.routing.services import ItemMove, move_items
from apps.routing.states import ItemState
from tests.access.factories import bearer, make_token, make_user
from tests.routing.api.active_rules import send
from tests.routing.factories import later

# Seed S2.6.
TASK = {
    "company_name": "宁乡县老粮仓镇楚江冻库",
    "credit_no": "92430124MA4MGMN16U",
    "search_key": "92430124MA4MGMN16U",
    "data_type": "change",
    "rt": True,
}


def operator(project: Project, role: Role = Role.OPERATOR, **token: Any) -> dict[str, str]:
    return bearer(make_token(make_user(roles={project: role}), **token))


def items_of(project: Project) -> list[dict[str, Any]]:
    rows = RoutedItem.objects.filter(project=project).order_by("id")
    return [json.loads(row.item) for row in rows]


def dispatched(project: Project, headers: dict[str, str]) -> str:
    """Return an item that waits for its result at ``changes``."""
    told = send("/task/", TASK, headers=headers).json()["items"][0]
    (entry,) = find_items(project=project.pk, task_uuids=[told["task_uuid"]]).values()
    move = ItemMove(
        entry=entry, to=ItemState.DISPATCHED, due_at=later(600), outbound="changes", routed_count=1
    )
    move_items(moves=[move], now=later(0))
    return str(told["task_uuid"])
