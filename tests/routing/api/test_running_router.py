"""Submissions and results over HTTP with a running router and a spider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.access.states import Role
from apps.routing.models import RoutedItem
from apps.routing.queries import item_accounting, reconcile_items
from tests.access.factories import bearer, make_project, make_token, make_user
from tests.routing.api.active_rules import send
from tests.routing.api.tasks import TASK
from tests.routing.daemon.routers import Router, outbound

TERMINAL = {"routing": {"limits": -1, "terminal_codes": [1000, 1101]}}


@pytest.fixture
def router(db: None, tmp_path: Path) -> Iterator[Router]:
    made = Router(make_project(), tmp_path)
    yield made
    made.close()


@pytest.fixture
def headers(router: Router) -> dict[str, str]:
    return bearer(make_token(make_user(roles={router.project: Role.OPERATOR})))


def post(body: Any, headers: dict[str, str]) -> dict[str, Any]:
    answer = send("/task/", body, headers=headers)
    assert answer.status_code == 200, answer.content
    return dict(answer.json()["items"][0])


@pytest.mark.covers("S2.1", "S2.5", "S2.6", "S2.34", "S2.35")
def test_a_task_goes_to_its_spider_and_its_results_come_back(
    router: Router, headers: dict[str, str]
) -> None:
    web = {"name": "web", "class": "http.HttpInbound", "selector": ["data_type"]}
    router.use([web], [outbound("captcha", "data_type == 'change'", retry_limits=1)], **TERMINAL)
    name = post(TASK, headers)["task_uuid"]

    router.until(lambda: router.states() == {"dispatched": 1}, "dispatch")
    (sent,) = router.target("captcha").messages
    assert (sent["task_uuid"], sent["company_name"]) == (name, TASK["company_name"])

    # The spider fails, and hands back what it was told.
    failed = post({"task_result": 5000, "task_params": sent}, headers)
    assert (failed["fate"], failed["state"]) == ("result", "retrying")
    router.until(lambda: router.states() == {"dispatched": 1}, "the second attempt")
    (_first, again) = router.target("captcha").messages
    assert (again["task_uuid"], again["retry_times"], again["group_retry_times"]) == (name, 1, 1)

    # Of the first attempt once more: no news.
    assert post({"task_result": 5000, "task_params": sent}, headers)["fate"] == "ignored"
    done = post({"task_result": 1000, "task_params": again}, headers)
    assert (done["fate"], done["state"]) == ("result", "succeeded")
    assert post({"task_result": 1000, "task_params": again}, headers)["fate"] == "ignored"
    item = RoutedItem.objects.get(project=router.project)
    assert [each.kind for each in item.story] == [
        *("received", "matched", "dispatched", "result", "retried", "dispatched"),
        *("result", "result", "ended", "late_result"),
    ]
    found = item_accounting(router.project.pk)
    assert (found.received, found.final["succeeded"], found.results) == (1, 1, 4)
    assert reconcile_items(router.project.pk).holds


def test_a_task_that_no_rule_takes_is_accepted_and_rejected_by_the_router(
    router: Router, headers: dict[str, str]
) -> None:
    router.use([], [outbound("captcha", "data_type == 'new'")])

    assert post(TASK, headers)["fate"] == "accepted"

    router.until(lambda: router.states() == {"rejected": 1}, "the end")


def test_a_result_leads_to_the_failback(router: Router, headers: dict[str, str]) -> None:
    first = outbound("first", "data_type", failback="second", direct_failback_status=[403])
    router.use([], [first, outbound("second")], **TERMINAL)
    post(TASK, headers)
    router.until(lambda: router.states() == {"dispatched": 1}, "dispatch")

    told = post({"task_result": 403, "task_params": router.target("first").messages[0]}, headers)

    assert (told["state"], told["reason"]) == ("retrying", "failback")
    router.until(lambda: router.states() == {"dispatched": 1}, "the failback")
    (sent,) = router.target("second").messages
    assert (sent["outbound"], sent["routed_count"]) == ("second", 2)
