"""Many clients at the same moment: run by test_on_postgres.py.

SQLite has one writer at a time, so nothing happens at the same moment there.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from apps.access.states import Role
from apps.projects.models import Project
from apps.routing.models import RoutedItem
from apps.routing.queries import item_accounting, reconcile_items
from tests.access.factories import bearer, make_project, make_token, make_user
from tests.routing.api.active_rules import activate_rules, send
from tests.routing.api.tasks import TASK, dispatched
from tests.routing.concurrent_ledger_writes import together

pytestmark = pytest.mark.django_db(transaction=True)

CLIENTS = 8


@pytest.fixture
def project() -> Project:
    found = make_project()
    activate_rules(found)
    return found


@pytest.fixture
def headers(project: Project) -> dict[str, str]:
    return bearer(make_token(make_user(roles={project: Role.OPERATOR})))


def test_the_same_result_of_many_clients_ends_its_item_once(
    project: Project, headers: dict[str, str]
) -> None:
    for _ in range(5):
        names = [dispatched(project, headers) for _ in range(3)]
        results = [{"task_uuid": name, "task_result": 1000} for name in names]
        # Each client in another order, as they come from the queues of spiders.
        calls = [
            partial(send, "/task/", results[n % 3 :] + results[: n % 3], headers=headers)
            for n in range(CLIENTS)
        ]

        answers = [answer.json()["items"] for answer in together(*calls)]

        fates = Counter((e["task_uuid"], e["fate"]) for items in answers for e in items)
        assert fates == {
            **{(name, "result"): 1 for name in names},
            **{(name, "ignored"): CLIENTS - 1 for name in names},
        }
    found = item_accounting(project.pk)
    assert (found.final["succeeded"], found.late_results) == (15, 15 * (CLIENTS - 1))
    assert reconcile_items(project.pk).holds


def test_the_same_key_of_many_clients_takes_the_items_once(
    project: Project, headers: dict[str, str]
) -> None:
    keyed = headers | {"Idempotency-Key": "k"}

    answers: list[Any] = together(*[partial(send, "/task/", [TASK] * 50, headers=keyed)] * CLIENTS)

    # Whoever comes while the first is at work is told to come again.
    assert {answer.status_code for answer in answers} <= {200, 409}
    # A stored answer is the same object; its members may come in another order.
    taken = [answer.json() for answer in answers if answer.status_code == 200]
    assert taken
    assert all(answer == taken[0] for answer in taken)
    assert RoutedItem.objects.filter(project=project).count() == 50
