"""Items over REST: search, history, cancellation and resubmission."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.models import Project
from apps.routing.models import RoutedItem
from apps.routing.queries import reconcile_items
from apps.routing.states import ItemState
from tests.access.factories import Api, make_project, make_user
from tests.routing.factories import NOW, arrive, moved, row_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project(slug="ic")


@pytest.fixture
def api(project: Project) -> Api:
    return Api(make_user(roles={project: Role.OPERATOR}))


def dead_letter(project: Project, **fields: Any) -> RoutedItem:
    (entry,) = arrive(project, **fields)
    return row_of(moved(entry, ItemState.FAILED, reason="retry_limits", outbound="captcha"))


def ids(answer: Any) -> list[int]:
    assert answer.status_code == 200, answer.content
    return [each["id"] for each in answer.json()["results"]]


def test_lists_by_state_way_and_time(project: Project, api: Api) -> None:
    old, new = arrive(project, inbound="logs"), arrive(project, inbound="web")
    failed = dead_letter(project)
    RoutedItem.objects.filter(pk=old[0].id).update(received_at=NOW - timedelta(hours=1))
    everything = [failed.pk, new[0].id, old[0].id]

    assert ids(api.get("routing/items")) == everything
    assert ids(api.get("routing/items?state=failed&state=expired")) == [failed.pk]
    assert ids(api.get("routing/items?inbound=web")) == [new[0].id]
    assert ids(api.get("routing/items?outbound=captcha&reason=retry_limits")) == [failed.pk]
    assert ids(api.get("routing/items?dead=true")) == [failed.pk]
    assert ids(api.get("routing/items?dead=false")) == everything[1:]
    assert ids(api.get(f"routing/items?task_uuid={failed.task_uuid}")) == [failed.pk]
    since = (NOW - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert ids(api.get(f"routing/items?since={since}")) == everything[:2]
    assert ids(api.get(f"routing/items?until={since}&project={project.pk}")) == everything[2:]
    assert api.get("routing/items?state=gone").status_code == 400
    first = api.get("routing/items?limit=2").json()
    assert ids(api.get(f"routing/items?limit=2&after={first['next']}")) == everything[2:]
    assert "item" not in first["results"][0]


def test_a_page_of_items_costs_few_statements(project: Project, api: Api) -> None:
    arrive(project, 50)
    api.get("routing/items")
    with CaptureQueriesContext(connection) as context:
        assert len(ids(api.get("routing/items"))) == 50
    assert len(context) <= 4, [each["sql"][:80] for each in context]


def test_one_item_comes_with_its_story_and_poison_as_it_came(project: Project, api: Api) -> None:
    failed = dead_letter(project)

    told = api.get(f"routing/items/{failed.pk}").json()

    assert told["item"] == json.loads(failed.item)
    assert (told["state"], told["raw"]) == ("failed", "")
    assert [each["kind"] for each in told["story"]] == ["received", "ended"]
    RoutedItem.objects.filter(pk=failed.pk).update(item="[1,")
    poison = api.get(f"routing/items/{failed.pk}").json()
    assert (poison["item"], poison["raw"]) == (None, "[1,")


def test_find_by_value(project: Project, api: Api) -> None:
    item = {"credit_no": "9243", "more": {"code": 7}}
    (entry,) = arrive(project, item=item)
    arrive(make_project(), item=item)

    def find(**asked: Any) -> tuple[list[int], bool]:
        words = "&".join(f"{name}={value}" for name, value in asked.items())
        answer = api.get(f"routing/items/find?{words}")
        return ids(answer), answer.json()["complete"]

    assert find(project=project.pk, value="9243") == ([entry.id], True)
    assert find(project=project.pk, value="7", key="code") == ([entry.id], True)
    assert find(project=project.pk, value="7", key="credit_no") == ([], True)
    assert find() == ([], True)
    refused = api.get("routing/items/find?value=9243")
    assert (refused.status_code, [*refused.json()["fields"]]) == (400, ["project"])


def test_an_open_item_is_cancelled_once(project: Project, api: Api) -> None:
    (entry,) = arrive(project)

    told = api.post(f"routing/items/{entry.id}/cancel", {"note": "sent by mistake"})

    assert (told.status_code, told.json()["state"]) == (200, "cancelled")
    assert told.json()["story"][-1]["kind"] == "cancelled"
    again = api.post(f"routing/items/{entry.id}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "item_not_open")
    assert AuditRecord.objects.filter(action="routing.cancel_item").count() == 1
    assert reconcile_items(project.pk).holds


def test_a_dead_letter_is_submitted_again_as_it_was_or_changed(project: Project, api: Api) -> None:
    one, other = dead_letter(project), dead_letter(project)

    as_it_was = api.post(f"routing/items/{one.pk}/resubmit")
    changed = api.post(f"routing/items/{other.pk}/resubmit", {"item": {"detail_url": "https://x"}})

    assert (as_it_was.status_code, changed.status_code) == (201, 201)
    assert as_it_was.json()["item"] == json.loads(one.item)
    assert as_it_was.json()["resubmit_of"] == str(one.task_uuid)
    assert changed.json()["item"] == {"detail_url": "https://x"}
    assert api.get("routing/items?dead=true").json()["results"] == []
    again = api.post(f"routing/items/{one.pk}/resubmit")
    assert (again.status_code, again.json()["code"]) == (409, "item_resubmitted")
    bad = api.post(f"routing/items/{dead_letter(project).pk}/resubmit", {"item": {"a": "\x00"}})
    assert (bad.status_code, bad.json()["code"]) == (422, "item_refused")


def test_the_same_key_submits_an_item_again_once(project: Project, api: Api) -> None:
    failed = dead_letter(project)
    path = f"routing/items/{failed.pk}/resubmit"

    first = api.post(path, Idempotency_Key="again")
    repeated = api.post(path, Idempotency_Key="again")

    assert (first.status_code, repeated.status_code) == (201, 201)
    assert first.json() == repeated.json()
    assert RoutedItem.objects.count() == 2


def test_many_dead_letters_are_submitted_again_and_each_is_answered(
    project: Project, api: Api
) -> None:
    dead = [dead_letter(project) for _ in range(3)]
    (open_item,) = arrive(project)
    foreign = dead_letter(make_project())
    asked = [dead[0].pk, dead[1].pk, open_item.id, foreign.pk, 10**9]

    body = {"project": project.pk, "ids": asked, "note": "target is back"}
    told = api.post("routing/items/resubmit", body).json()

    assert [each["id"] for each in told["resubmitted"]] == [dead[0].pk, dead[1].pk]
    refused = {each["id"]: each["code"] for each in told["refused"]}
    assert refused == dict.fromkeys([open_item.id, foreign.pk, 10**9], "item_not_resubmittable")
    assert RoutedItem.objects.get(pk=foreign.pk).replaced_by is None
    # What is left, by what it has in common.
    by_outbound = {"project": project.pk, "outbound": "captcha", "state": ["failed"]}
    rest = api.post("routing/items/resubmit", by_outbound).json()
    assert [each["id"] for each in rest["resubmitted"]] == [dead[2].pk]
    assert rest["more"] is False
    assert reconcile_items(project.pk).holds


def test_a_bulk_is_bounded_and_says_that_there_is_more(project: Project, api: Api) -> None:
    dead = [dead_letter(project) for _ in range(3)]

    told = api.post("routing/items/resubmit", {"project": project.pk, "limit": 2}).json()

    assert [each["id"] for each in told["resubmitted"]] == [dead[0].pk, dead[1].pk]
    assert told["more"] is True
    assert (
        api.post("routing/items/resubmit", {"project": project.pk, "limit": 201}).status_code == 400
    )


def test_only_operators_of_the_project_submit_again(project: Project) -> None:
    dead_letter(project)
    other = make_project()
    mixed = Api(make_user(roles={project: Role.VIEWER, other: Role.ADMIN}))

    refused = mixed.post("routing/items/resubmit", {"project": project.pk})

    assert (refused.status_code, [*refused.json()["fields"]]) == (400, ["project"])
    assert RoutedItem.objects.filter(replaced_by__isnull=False).count() == 0
