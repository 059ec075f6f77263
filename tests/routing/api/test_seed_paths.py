"""The seed's own paths: submission, dry run, list of outbounds, in the seed's format."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.access.states import Role
from apps.projects.models import Project
from apps.routing.engine.rules import Convert
from apps.routing.engine.steps import StepKind
from apps.routing.models import RoutedItem, ValuePage
from apps.routing.queries import find_items, item_accounting, reconcile_items
from tests.access.factories import Api, bearer, make_project, make_superuser, make_token, make_user
from tests.routing.api.active_rules import CHANGES, REST, activate_rules, http_inbound, send
from tests.routing.api.tasks import TASK, dispatched, items_of, operator

pytestmark = pytest.mark.django_db

# Seed S2.7.
CHECKED = {
    "task_result": 1001,
    "spider_start_time": "2021-10-22 15:12:02.145",
    "type": "tax_arrears_announcement",
    "spider_end_time": "2021-10-22 15:12:03",
    "spider_ip": "10.8.6.51",
    "metadata": {"period": "2020年第2期"},
    "http_code": 200,
    "log_date": "2021.10.22",
    "spider_name": "tax_arrears_announcement",
    "data_type": "task_distribution",
    "error_msg": "",
    "task_params": {"city": "guangxi", "operate": "all", "task_type": "task"},
}


@pytest.fixture
def project() -> Project:
    return make_project(slug="ic")


# --- POST /task/ ----------------------------------------------------------------------------------


@pytest.mark.covers("S2.1", "S2.6")
@pytest.mark.parametrize("path", ["/task/", "/task", "/projects/ic/task/", "/projects/ic/task"])
def test_the_seeds_task_is_taken_and_in_the_ledger_before_the_answer(
    path: str, project: Project
) -> None:
    activate_rules(project)

    answer = send(path, TASK, headers=operator(project))

    assert answer.status_code == 200, answer.content
    told = answer.json()
    assert (told["project"], told["rules_version"]) == ("ic", 1)
    (one,) = told["items"]
    assert (one["fate"], one["state"], one["inbound"]) == ("accepted", "received", "http")
    row = RoutedItem.objects.get(task_uuid=one["task_uuid"])
    assert json.loads(row.item) == TASK
    # Any router may take it at once.
    assert row.due_at == row.received_at
    assert item_accounting(project.pk).received == 1


def test_a_list_is_answered_in_its_order(project: Project) -> None:
    activate_rules(project, inbounds=(http_inbound(selector=("data_type == 'change'",)),))
    tasks = [TASK | {"n": n, "data_type": "change" if n % 2 else "no"} for n in range(5)]

    answer = send("/task/", tasks, headers=operator(project)).json()

    fates = [each["fate"] for each in answer["items"]]
    assert fates == ["filtered", "accepted", "filtered", "accepted", "filtered"]
    kept = [each["task_uuid"] for each in answer["items"] if each["task_uuid"]]
    known = find_items(project=project.pk, task_uuids=kept)
    assert [known[name].item["n"] for name in kept] == [1, 3]
    found = item_accounting(project.pk)
    assert (found.received, found.filtered) == (2, 3)
    assert reconcile_items(project.pk).holds


@pytest.mark.covers("S2.22")
def test_the_first_inbound_that_accepts_takes_an_item_and_converts_it(project: Project) -> None:
    lift = (Convert("common.ExtractTaskParams"),)
    activate_rules(
        project,
        inbounds=(
            http_inbound("off", disable=True),
            http_inbound("guangxi", convert=lift, selector=("city == 'guangxi'",)),
            http_inbound("others"),
        ),
    )
    tasks = [{"task_params": {"city": "guangxi"}}, {"task_params": {"city": "hunan"}}]

    told = send("/task/", tasks, headers=operator(project)).json()["items"]

    assert [each["inbound"] for each in told] == ["guangxi", "others"]
    assert items_of(project)[0]["city"] == "guangxi"
    assert "city" not in items_of(project)[1]
    story = RoutedItem.objects.get(task_uuid=told[0]["task_uuid"]).story
    assert [each.kind for each in story] == [StepKind.RECEIVED, StepKind.CONVERTED]


def test_when_every_inbound_of_http_is_disabled_nothing_is_taken(project: Project) -> None:
    activate_rules(project, inbounds=(http_inbound(disable=True),))

    answer = send("/task/", TASK, headers=operator(project))

    assert (answer.status_code, answer.json()["code"]) == (409, "inbound_disabled")


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    ("body", "code", "place"),
    [
        (b"", "not_json", "items.0"),
        (b"{", "not_json", "items.0"),
        (b'[{"a": 1}, {"a": 1,]', "not_json", "items"),
        (b"[]", "empty", "items"),
        (b"null", "not_a_dict", "items.0"),
        (b'[{}, "text"]', "not_a_dict", "items.1"),
        (b'[{}, {}, {"a": 1, "a": 2}]', "duplicate_key", "items.2"),
        (b'{"a": NaN}', "bad_number", "items.0"),
        (b'[{"a": 1e400}]', "bad_number", "items.0"),
        (b'{"a": "\\u0000"}', "null_character", "items.0"),
        (b'{"a": "\xff"}', "not_utf8", "items.0"),
        (b'{"a":' * 100_000, "too_deep", "items.0"),
        (b"[" * 100_000, "too_deep", "items"),
        (b'{"a": "' + b"x" * 1024 * 1024 + b'"}', "too_large", "items.0"),
        (b"[" + b",".join([b"{}"] * 1001) + b"]", "too_many", "items"),
        (b"\x80\x04K\x01.", "not_utf8", "items.0"),
    ],
    ids=range(16),
)
def test_what_is_no_item_is_refused_with_its_place_and_nothing_is_kept(
    body: bytes, code: str, place: str, project: Project
) -> None:
    activate_rules(project)

    answer = send("/task/", body, headers=operator(project))

    assert answer.status_code == 422, answer.content
    told = answer.json()
    assert told["code"] == code
    assert [*told["fields"]] == [place]
    assert not RoutedItem.objects.exists()
    assert not ValuePage.objects.exists()
    assert item_accounting(project.pk).received == 0


def test_more_than_a_call_may_have_is_refused(project: Project) -> None:
    activate_rules(project)

    answer = send("/task/", b" " * (8 * 1024 * 1024 + 1), headers=operator(project))

    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_an_item_that_no_converter_can_work_on_refuses_the_call(project: Project) -> None:
    parse = Convert("common.ParseJson", {"keys": ["more"], "wrong": "refuse"})
    activate_rules(project, inbounds=(http_inbound(convert=(parse,)),))

    answer = send("/task/", [TASK, {"more": "{"}], headers=operator(project))

    assert answer.status_code == 422
    assert [*answer.json()["fields"]] == ["items.1"]
    assert "common.ParseJson" in answer.json()["fields"]["items.1"][0]
    assert not RoutedItem.objects.exists()


def test_another_type_than_json_is_refused(project: Project) -> None:
    activate_rules(project)

    answer = send("/task/", TASK, headers=operator(project), content_type="text/plain")

    assert answer.status_code == 415
    assert not RoutedItem.objects.exists()


# --- which project --------------------------------------------------------------------------------


def test_which_project_a_call_means(project: Project) -> None:
    activate_rules(project)
    other = make_project(slug="other")
    boss = make_superuser()
    headers = bearer(make_token(boss))

    def to(path: str, headers: dict[str, str]) -> tuple[int, str]:
        answer = send(path, TASK, headers=headers)
        return answer.status_code, answer.json().get("project") or answer.json()["code"]

    # The only one with active rules.
    assert to("/task/", headers) == (200, "ic")
    assert to("/projects/other/task/", headers) == (409, "no_active_rules")
    activate_rules(other)
    assert to("/task/", headers) == (409, "project_needed")
    assert to("/projects/other/task/", headers) == (200, "other")
    # That of the token.
    assert to("/task/", bearer(make_token(boss, project=other))) == (200, "other")
    assert to("/projects/nowhere/task/", headers) == (404, "not_found")


def test_projects_of_others_do_not_exist(project: Project) -> None:
    activate_rules(project)
    headers = operator(make_project(slug="mine"))

    for path in ("/projects/ic/task/", "/projects/ic/inbound/http/check_task/"):
        assert send(path, TASK, headers=headers).status_code == 404
    refused = Api(make_user(roles={make_project(): Role.ADMIN})).get("/projects/ic/outbound/")
    assert refused.status_code == 404
    assert (send("/task/", TASK, headers=headers).json()["code"]) == "no_active_rules"
    assert not RoutedItem.objects.exists()


def test_who_may_submit(project: Project) -> None:
    activate_rules(project)
    viewer = operator(project, Role.VIEWER)
    reader = operator(project, scopes=("routing:read",))
    elsewhere = operator(project, scopes=("jobs:write",))

    assert send("/task/", TASK).status_code == 401
    refused = send("/task/", TASK, headers=viewer)
    assert (refused.status_code, refused.json()["code"]) == (403, "role_required")
    named = send("/projects/ic/task/", TASK, headers=viewer)
    assert (named.status_code, named.json()["code"]) == (403, "role_required")
    for headers in (reader, elsewhere):
        refused = send("/task/", TASK, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
    assert send("/inbound/http/check_task/", TASK, headers=reader).status_code == 200
    assert (
        send("/task/", TASK, headers=operator(project, scopes=("routing:write",))).status_code
        == 200
    )


# --- Idempotency-Key, cost ------------------------------------------------------------------------


def test_the_same_key_takes_the_items_once(project: Project) -> None:
    activate_rules(project)
    headers = operator(project) | {"Idempotency-Key": "batch-1"}

    first = send("/task/", [TASK, TASK], headers=headers)
    again = send("/task", [TASK, TASK], headers=headers)
    other = send("/task/", [TASK], headers=headers)

    assert (first.status_code, again.json()) == (200, first.json())
    assert again["Idempotent-Replayed"] == "true"
    assert RoutedItem.objects.count() == 2
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    bad = headers | {"Idempotency-Key": "batch-2"}
    assert send("/task/", b"[", headers=bad).status_code == 422
    # What was refused has used up no key.
    assert send("/task/", TASK, headers=bad).status_code == 200


@pytest.mark.parametrize("size", [1, 200])
def test_a_call_costs_few_statements_however_many_items_it_brings(
    size: int, project: Project
) -> None:
    activate_rules(project)
    headers = operator(project)
    send("/task/", TASK, headers=headers)

    with CaptureQueriesContext(connection) as context:
        assert send("/task/", [TASK] * size, headers=headers).status_code == 200
    assert len(context) <= 10, [each["sql"][:80] for each in context]


# --- the dry run ----------------------------------------------------------------------------------


@pytest.mark.covers("S2.7")
@pytest.mark.parametrize(
    "path",
    [
        "/inbound/gravel_inbound/check_task/",
        "/inbound/gravel_inbound/check_task",
        "/projects/ic/inbound/gravel_inbound/check_task/",
    ],
)
def test_the_seeds_dry_run_explains_and_keeps_nothing(path: str, project: Project) -> None:
    lift = (Convert("common.ExtractTaskParams"), Convert("common.ExtractMetadata"))
    activate_rules(
        project,
        inbounds=(http_inbound("gravel_inbound", convert=lift, selector=("city == 'guangxi'",)),),
        outbounds=(CHANGES, replace(REST, selector=("period",))),
    )

    answer = send(path, CHECKED, headers=operator(project, Role.VIEWER))

    assert answer.status_code == 200, answer.content
    told = answer.json()
    assert told["received"] == CHECKED
    assert told["converted"]["period"] == "2020年第2期"
    assert told["inbound"]["accepts"] is True
    assert told["decision"]["outbound"] == "rest"
    verdicts = [(each["name"], each["verdict"]) for each in told["outbounds"]]
    assert verdicts == [("changes", "not_matched"), ("rest", "taken")]
    assert told["message"]["message"]["city"] == "guangxi"
    assert not RoutedItem.objects.exists()
    found = item_accounting(project.pk)
    assert (found.received, found.filtered) == (0, 0)


def test_the_dry_run_of_a_result_knows_its_item(project: Project) -> None:
    activate_rules(project)
    headers = operator(project)
    result = {"task_uuid": dispatched(project, headers), "task_result": 1000}

    told = send("/inbound/http/check_task/", result, headers=headers).json()

    assert told["decision"]["state"] == "succeeded"
    assert RoutedItem.objects.get().state == "dispatched"


def test_an_inbound_that_is_not_there_is_404_with_the_nearest_name(project: Project) -> None:
    activate_rules(project, inbounds=(http_inbound("gravel_inbound"),))

    answer = send("/inbound/gravel-inbound/check_task/", CHECKED, headers=operator(project))

    assert (answer.status_code, answer.json()["code"]) == (404, "inbound_not_found")
    assert "gravel_inbound" in answer.json()["detail"]


def test_the_dry_run_of_what_is_no_item_says_why(project: Project) -> None:
    activate_rules(project)

    told = send("/inbound/http/check_task/", b'{"a": 1, "a": 2}', headers=operator(project)).json()

    assert (told["outcome"], told["refused"]["code"]) == ("refused", "duplicate_key")


# --- GET /outbound/<prefix> -----------------------------------------------------------------------


@pytest.mark.covers("S2.8")
def test_outbounds_by_prefix_in_effective_order_without_secrets(project: Project) -> None:
    names = ["b", "ab", "a/b", "新", "a"]
    outbounds = tuple(replace(CHANGES, name=name) for name in names)
    activate_rules(project, outbounds=outbounds)
    api = Api(make_user(roles={project: Role.VIEWER}))

    def listed(path: str) -> list[str]:
        answer = api.get(path)
        assert answer.status_code == 200
        return [each["name"] for each in answer.json()["outbounds"]]

    for empty in ("/outbound/", "/outbound", "/projects/ic/outbound/"):
        assert listed(empty) == names
    assert listed("/outbound/a") == ["ab", "a/b", "a"]
    assert listed("/outbound/a/b") == ["a/b"]
    assert listed("/outbound/新/") == ["新"]
    assert listed("/outbound/none") == []
    first = api.get("/outbound/b").json()["outbounds"][0]
    assert (first["place"], first["class"], first["selector"]) == (
        1,
        CHANGES.cls,
        ["data_type == 'change'"],
    )
    assert "hush" not in api.get("/outbound/").content.decode()
