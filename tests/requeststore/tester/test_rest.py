"""Trying rules and keeping pages over REST."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from apps.access.states import Role
from apps.projects.models import Project
from apps.requeststore.models import SamplePage
from tests.access.factories import Api, make_project, make_user
from tests.requeststore.tester.shop import RULE, shop

pytestmark = [pytest.mark.covers("S4.5", "S4.9"), pytest.mark.django_db]


def caller(project: Project, role: Role = Role.VIEWER) -> Api:
    return Api(make_user(roles={project: role}))


def tried(api: Api, project: Project, body: Any, status: int = 200) -> Any:
    answer = api.post(f"bizzes/{project.pk}.news/rules/test", body)
    assert answer.status_code == status, answer.content
    return answer.json()


def test_a_viewer_tries_a_rule_on_every_kept_page(project: Project, sample: SamplePage) -> None:
    rule = RULE | {"fields": {"name": "h2"}}
    found = tried(caller(project), project, {"rule": "list", "definition": rule})
    assert (found["changed"], found["left"], found["refused"]) == (1, 0, False)
    [result] = found["results"]
    assert result["sample"] == sample.pk
    assert result["after"]["records"] == [{"name": "茶壶"}, {"name": "杯子"}]
    assert result["before"]["records"][0] == {"title": "茶壶", "price": 12}
    assert result["after"]["follow"] == [
        {"url": "https://shop.example/list?page=2", "rule": "other", "depth": 1}
    ]
    assert result["expressions"][0]["place"] == "each"
    assert {each["field"] for each in result["changes"]} == {"title", "price", "name"}


def test_the_active_rule_on_one_page_or_on_a_given_one(
    project: Project, sample: SamplePage
) -> None:
    api = caller(project)
    one = tried(api, project, {"rule": "list", "sample": sample.pk})
    assert one["changed"] == 0
    page = shop("新")
    given = {
        "url": page.url,
        "headers": {"Content-Type": "text/html; charset=gbk"},
        "body_base64": base64.b64encode(page.body).decode(),
    }
    found = tried(api, project, {"rule": "list", "page": given})
    assert found["results"][0]["after"]["records"] == [{"title": "新", "price": 12}]
    text = {"url": "https://a.cn/", "body": "<div class=item></div>"}
    failed = tried(api, project, {"rule": "list", "page": text})["results"][0]["after"]
    assert failed["failed"]
    assert failed["problems"][0] == {
        "code": "missing",
        "text": "required, and not on this page",
        "field": "title",
        "record": 0,
        "fatal": True,
    }


def test_a_bad_rule_comes_back_with_the_place_of_its_fault(project: Project) -> None:
    body = {"rule": "list", "definition": {"fields": {"a": {"xpath": "//a[@x==1]"}}}}
    found = tried(caller(project), project, body)
    assert found["refused"]
    [problem] = found["problems"]
    assert (problem["place"], problem["offset"]) == ("rules.list.fields.a.xpath", 7)


@pytest.mark.parametrize(
    "body",
    [
        {"rule": "nosuch"},
        {"rule": "list", "sample": 999_999},
        {"rule": "list", "page": {"url": "https://a.cn/", "body_base64": "!"}},
    ],
)
def test_what_cannot_be_tried_is_422(project: Project, body: Any) -> None:
    assert tried(caller(project), project, body, 422)["code"] == "bad_test"


def test_of_other_projects_nothing_is_known(project: Project, sample: SamplePage) -> None:
    stranger = caller(make_project(), Role.ADMIN)
    assert stranger.post(f"bizzes/{project.pk}.news/rules/test", {}).status_code == 404
    assert stranger.get(f"sample-pages/{sample.pk}").status_code == 404
    assert stranger.delete(f"sample-pages/{sample.pk}").status_code == 404


def test_an_editor_keeps_lists_and_deletes_pages(project: Project, sample: SamplePage) -> None:
    editor = caller(project, Role.EDITOR)
    body = {
        "project": project.pk,
        "biz": "news",
        "rule": "list",
        "page": {"url": "https://a.cn/x", "body": "<p>中文</p>"},
    }
    made = editor.post("sample-pages", body, Idempotency_Key="k1")
    assert made.status_code == 201, made.content
    assert editor.post("sample-pages", body, Idempotency_Key="k1").json() == made.json()
    assert made.json()["bytes"] == len("<p>中文</p>".encode())
    listed = editor.get(f"sample-pages?project={project.pk}&biz=news").json()["results"]
    assert [(each["id"], each["url"]) for each in listed] == [
        (made.json()["id"], "https://a.cn/x"),
        (sample.pk, "https://shop.example/list"),
    ]
    assert listed[1]["bytes"] == len(bytes(sample.body))
    assert editor.delete(f"sample-pages/{sample.pk}").status_code == 204
    assert SamplePage.objects.count() == 1


def test_only_editors_keep_and_download(project: Project, sample: SamplePage) -> None:
    viewer = caller(project)
    body = {"project": project.pk, "biz": "news", "url": "https://a.cn/"}
    assert viewer.post("sample-pages", body).status_code == 403
    assert viewer.delete(f"sample-pages/{sample.pk}").status_code == 403
    assert SamplePage.objects.count() == 1


def test_a_download_within_the_own_network_is_refused(project: Project) -> None:
    editor = caller(project, Role.EDITOR)
    body = {"project": project.pk, "biz": "news", "url": "http://127.0.0.1:1/"}
    answer = editor.post("sample-pages", body)
    assert (answer.status_code, answer.json()["code"]) == (422, "not_fetched")
    both = body | {"page": {"url": "https://a.cn/"}}
    assert editor.post("sample-pages", both).status_code == 400
    assert editor.post("sample-pages", body | {"biz": "nosuch"}).status_code == 404
