"""Concurrent edits of rules, and viewers without permission to edit."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse

from apps.access.states import Role
from apps.configcenter.models import ConfigVersion
from apps.projects.models import Project
from tests.access.factories import Api, make_project, make_user
from tests.routing.admin.editor import EditorClient, editor
from tests.routing.admin.pages import (
    RULES,
    SECRET,
    URL,
    address,
    html_of,
    outbound,
    person,
    rule_set,
    save,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project(slug="yard")


def test_the_second_of_two_editors_is_told_and_loses_nothing(project: Project) -> None:
    save(project)
    one, two = editor(project), editor(project)
    one.type("outbound", 0, note="mine")
    two.type("outbound", 1, note="yours")
    first = one.saved("quick")
    answer = two.save("slow")
    assert answer.status_code == 409
    told = answer.json()["meanwhile"]
    newest = ConfigVersion.objects.get(number=2)
    assert told["number"] == 2
    assert told["note"] == "quick"
    assert told["address"] == reverse("admin:configcenter_configversion_change", args=[newest.pk])
    # The draft is as it was; saved all the same it is a version of its own.
    two.based_on = 2
    assert two.saved("slow")["outbound"][1]["note"] == "yours"
    assert ConfigVersion.objects.get(number=2).data == first


def test_an_older_version_can_be_gone_on_with(project: Project) -> None:
    save(project, rule_set(outbound("old", "True")))
    save(project, rule_set(outbound("new", "True")))
    page = editor(project, version=1)
    page.type("outbound", 0, note="again")
    assert [each["name"] for each in page.saved()["outbound"]] == ["old"]
    for bad in ("9", "x", "%00", "9" * 30):
        where = address(RULES, project) + f"&version={bad}"
        assert person(project).get(where).status_code == 404


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_those_who_may_not_edit_look_and_see_no_password(project: Project, role: Role) -> None:
    rules = rule_set(
        outbound("a", "True", init={"url": URL, "key": "a"}),
        outbound("b", "True", constants={"api_key": SECRET, "task_src": 3}),
    )
    version = save(project, rules, active=True)
    page = EditorClient(person(project, role), project)
    assert page.form["may_edit"] is False
    client = page.client
    where = [
        address(RULES, project),
        reverse("admin:configcenter_configversion_change", args=[version.pk]),
        address("routing_routerreport_changelist", project),
    ]
    for each in where:
        assert SECRET not in html_of(client, each), each
    state = page.form["state"]["outbound"]
    assert state[0]["init.url"] == "redis://:****@cache:6379/0"
    assert state[1]["constants"] == "api_key: ****\ntask_src: 3"
    for name in ("routing_rules_check", "routing_rules_save"):
        assert page.send(name, based_on=1).status_code == 403
    api = Api(make_user(roles={project: role}))
    assert SECRET not in api.get(f"config/versions/{version.pk}").content.decode()
    # Who edits them must see them.
    assert URL in html_of(person(project), where[0])
    editing = Api(make_user(roles={project: Role.EDITOR}))
    assert SECRET in editing.get(f"config/versions/{version.pk}").content.decode()


def test_rules_of_other_projects_do_not_exist(project: Project) -> None:
    other = make_project(slug="other")
    save(other, rule_set(outbound("of others", "True")))
    client = person(project, Role.ADMIN)
    assert client.get(address(RULES, other)).status_code == 404
    for name in ("routing_rules_check", "routing_rules_save"):
        sent = {"version": 1, "draft": {}, "based_on": 1}
        answer = client.post(address(name, other), json.dumps(sent), "application/json")
        assert answer.status_code == 404
    assert "of others" not in html_of(client, address(RULES, project))
