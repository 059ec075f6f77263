"""Results that arrive over HTTP."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from apps.projects.models import Project
from apps.routing.engine.outcomes import Reason
from apps.routing.engine.rules import Failure
from apps.routing.engine.steps import StepKind
from apps.routing.models import RoutedItem
from apps.routing.queries import item_accounting, reconcile_items
from tests.access.factories import make_project
from tests.routing.api.active_rules import CHANGES, activate_rules, http_inbound, send
from tests.routing.api.tasks import dispatched, operator

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project(slug="ic")


@pytest.mark.covers("S2.34")
def test_a_result_ends_its_item_though_no_selector_wants_it(project: Project) -> None:
    activate_rules(project, inbounds=(http_inbound(selector=("data_type == 'change'",)),))
    headers = operator(project)
    name = dispatched(project, headers)

    answer = send("/task/", {"task_uuid": name, "task_result": 1000}, headers=headers).json()

    (told,) = answer["items"]
    assert told["task_uuid"] == name
    assert (told["fate"], told["state"], told["reason"]) == (
        "result",
        "succeeded",
        Reason.TERMINAL.value,
    )
    row = RoutedItem.objects.get()
    assert (row.state, row.reason) == ("succeeded", "terminal")
    assert [each.kind for each in row.story][-2:] == [StepKind.RESULT, StepKind.ENDED]
    assert item_accounting(project.pk).results == 1
    assert reconcile_items(project.pk).holds


@pytest.mark.covers("S2.5")
def test_a_failure_waits_for_a_router_that_sends_it_again(project: Project) -> None:
    activate_rules(project)
    headers = operator(project)
    name = dispatched(project, headers)

    told = send("/task/", {"task_uuid": name, "task_result": 7}, headers=headers).json()["items"]

    assert (told[0]["state"], told[0]["reason"]) == ("retrying", "retry")
    row = RoutedItem.objects.get()
    assert (row.state, row.outbound, row.retry_times) == ("retrying", "changes", 1)
    assert row.due_at == row.changed_at
    assert json.loads(row.item)["task_result"] == 7


def test_two_results_of_one_item_in_one_call(project: Project) -> None:
    activate_rules(project)
    headers = operator(project)
    name = dispatched(project, headers)
    results = [{"task_uuid": name, "task_result": 1000}, {"task_uuid": name, "task_result": 9}]

    told = send("/task/", results, headers=headers).json()["items"]

    assert [each["fate"] for each in told] == ["result", "ignored"]
    assert told[1]["reason"] == Reason.LATE_RESULT.value
    found = item_accounting(project.pk)
    assert (found.results, found.late_results, found.final["succeeded"]) == (2, 1, 1)
    assert reconcile_items(project.pk).holds


@pytest.mark.covers("S2.13")
def test_an_item_that_fails_for_good_is_in_the_failure_file(
    project: Project, settings: Any, tmp_path: Path
) -> None:
    settings.ROUTING_FAILURE_DIRS = [tmp_path]
    (tmp_path / "ic.jsonl.000001").write_bytes(b'{"older":1}\n')
    hopeless = replace(CHANGES, retry_limits=0)
    failure = Failure("{failure_path}", compress=True)
    activate_rules(project, outbounds=(hopeless,), failure=failure)
    headers = operator(project)
    name = dispatched(project, headers)

    result = {"task_uuid": name, "task_result": "blocked"}
    (told,) = send("/task/", result, headers=headers).json()["items"]

    assert told["state"] == "failed"
    (line,) = (tmp_path / "ic.jsonl").read_text("utf-8").splitlines()
    failed = json.loads(line)
    assert (failed["task_uuid"], failed["status"], failed["project"]) == (name, "blocked", "ic")
    assert sorted(path.name for path in tmp_path.glob("ic*")) == ["ic.jsonl", "ic.jsonl.000001.gz"]


def test_without_its_failure_file_no_item_fails(
    project: Project, settings: Any, tmp_path: Path
) -> None:
    settings.ROUTING_FAILURE_DIRS = [tmp_path]
    (tmp_path / "ic.jsonl").mkdir()
    hopeless = replace(CHANGES, retry_limits=0)
    activate_rules(project, outbounds=(hopeless,), failure=Failure("{failure_path}"))
    headers = operator(project)
    name = dispatched(project, headers)

    refused = send("/task/", {"task_uuid": name, "task_result": 9}, headers=headers)

    assert (refused.status_code, refused.json()["code"]) == (503, "failures_unwritable")
    assert int(refused["Retry-After"]) > 0
    assert RoutedItem.objects.get().state == "dispatched"
    assert item_accounting(project.pk).results == 0


def test_a_result_of_nobody_s_item_is_a_new_item(project: Project) -> None:
    activate_rules(project)
    stranger = {"task_uuid": str(uuid.uuid4()), "task_result": 1001, "data_type": "change"}

    (told,) = send("/task/", stranger, headers=operator(project)).json()["items"]

    assert told["fate"] == "accepted"
    assert told["task_uuid"] != stranger["task_uuid"]


def test_a_result_of_another_project_s_item_moves_nothing_there(project: Project) -> None:
    other = make_project(slug="other")
    for each in (project, other):
        activate_rules(each)
    name = dispatched(project, operator(project))

    result = {"task_uuid": name, "task_result": 1000}
    (told,) = send("/task/", result, headers=operator(other)).json()["items"]

    assert told["fate"] == "accepted"
    assert RoutedItem.objects.get(project=project).state == "dispatched"
