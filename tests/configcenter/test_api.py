"""REST endpoints of configurations, versions and activations."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.access.states import Role
from apps.configcenter.models import Activation, Configuration, ConfigVersion
from apps.configcenter.services import ConfigWatcher, activate
from apps.projects.models import Project
from tests.access.factories import Api, make_project, make_user
from tests.configcenter.factories import KIND, NOW, fresh, make_process, make_version, save
from yardkit.clock import ManualClock

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


def editor(project: Project, role: Role = Role.EDITOR) -> Api:
    return Api(make_user(username=f"{role}-{project.pk}", roles={project: role}))


def body(project: Project, **more: Any) -> dict[str, Any]:
    return {"kind": KIND, "project": project.pk, "data": {"limit": 1}} | more


def test_a_version_is_saved_and_read_back(project: Project) -> None:
    api = editor(project)
    data = {"limit": 0, "名": "值", "b": [1.5, None]}
    made = api.post("config/versions", body(project, data=data, note="first", based_on=0))
    assert made.status_code == 201, made.content
    answer = made.json()
    assert (answer["created"], answer["warnings"]) == (True, ["limit: nothing will go through"])
    version = answer["version"]
    assert (version["number"], version["data"], version["note"]) == (1, data, "first")
    assert (version["kind"], version["project"], version["active"]) == (KIND, project.pk, False)
    assert version["author_label"] == f"editor-{project.pk}"
    read = api.get(f"config/versions/{version['id']}")
    assert read.json() == version
    again = api.get(f"config/versions/{version['id']}", if_none_match=read["ETag"])
    assert again.status_code == 304
    repeated = api.post("config/versions", body(project, data=data))
    assert (repeated.status_code, repeated.json()["created"]) == (200, False)
    (listed,) = api.get("config/versions").json()["results"]
    assert "data" not in listed
    assert listed["number"] == 1


def test_a_version_is_saved_of_text_and_activated_at_once(project: Project) -> None:
    asked = body(project, text='{"limit": 4}', activate=True, note="go")
    del asked["data"]
    api = editor(project)
    answer = api.post("config/versions", asked)
    assert answer.status_code == 201, answer.content
    assert answer.json()["version"]["active"]
    # Repeating the call changes nothing.
    assert api.post("config/versions", asked).status_code == 200
    assert Activation.objects.get().version == ConfigVersion.objects.get()


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    ("change", "status", "code", "field"),
    [
        ({"data": {"limit": -1}}, 422, "bad_config", "data"),
        ({"data": [1]}, 400, "invalid", "data"),
        ({"data": {"a": "\x00"}}, 422, "bad_config", "data"),
        ({"data": {"a": 10**40}}, 422, "bad_config", "data"),
        ({"kind": "nothing"}, 422, "unknown_kind", "kind"),
        ({"kind": "x" * 33}, 400, "invalid", "kind"),
        ({"project": 10**9}, 400, "invalid", "project"),
        ({"based_on": 3}, 409, "saved_meanwhile", "based_on"),
        ({"based_on": -1}, 400, "invalid", "based_on"),
        ({"text": "{}"}, 400, "invalid", None),
        ({"note": "x" * 2001}, 400, "invalid", "note"),
    ],
)
def test_what_is_refused_says_where(
    project: Project, change: dict[str, Any], status: int, code: str, field: str | None
) -> None:
    answer = editor(project).post("config/versions", body(project) | change)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.content
    assert field is None or field in answer.json()["fields"]
    assert not ConfigVersion.objects.exists()


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"limit": "x"}', '{"a": "\\u0000"}'])
def test_bad_texts_are_refused(project: Project, text: str) -> None:
    asked = body(project, text=text)
    del asked["data"]
    answer = editor(project).post("config/versions", asked)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_config")
    assert answer.json()["fields"]


def test_who_edits_elsewhere_saves_nothing_here(project: Project) -> None:
    user = make_user(roles={project: Role.OPERATOR, make_project(): Role.ADMIN})
    answer = Api(user).post("config/versions", body(project))
    assert (answer.status_code, answer.json()["code"]) == (403, "role_required")
    hidden = editor(make_project()).post("config/versions", body(project))
    assert (hidden.status_code, set(hidden.json()["fields"])) == (400, {"project"})


def test_versions_are_compared(project: Project) -> None:
    api = editor(project, Role.VIEWER)
    one = save(project, 1)
    three = [save(project, n) for n in (2, 3)][1]
    assert api.get(f"config/versions/{three.pk}/diff").json() == {
        "old": 2,
        "new": 3,
        "changes": [{"place": "limit", "what": "changed", "before": 2, "after": 3}],
    }
    answer = api.get(f"config/versions/{three.pk}/diff?against=1").json()
    assert (answer["old"], answer["changes"][0]["before"]) == (1, 1)
    back = api.get(f"config/versions/{one.pk}/diff?against=3").json()
    assert back["changes"][0]["after"] == 1
    empty = api.get(f"config/versions/{one.pk}/diff").json()
    assert (empty["old"], empty["changes"][0]["what"]) == (0, "added")
    for bad in ("9", "x", "-1", "1.5", "%00", "9" * 30):
        refused = api.get(f"config/versions/{one.pk}/diff?against={bad}")
        assert (refused.status_code, refused.json()["code"]) == (400, "bad_request"), bad
    gone = make_version(project)
    assert api.get(f"config/versions/{gone.pk}/diff").json()["changes"][0]["place"] == "a"


def test_what_would_change_is_told_before_it_is_saved(project: Project) -> None:
    version = save(project, 1)
    api = editor(project, Role.VIEWER)
    address = f"config/{version.configuration_id}/check"
    good = api.post(address, {"data": {"limit": 0}}).json()
    assert good["valid"]
    (warning,) = good["problems"]
    assert (warning["place"], warning["code"], warning["warning"]) == ("limit", "zero", True)
    change = {"place": "limit", "what": "changed", "before": 1, "after": 0}
    assert good["changes"] == [change]
    assert api.post(address, {"text": '{"limit": 0}'}).json() == good
    bad = api.post(address, {"data": {"limit": -1}}).json()
    assert (bad["valid"], bad["changes"], len(bad["problems"])) == (False, [], 1)
    assert api.post(address, {"data": {"a": "\x00"}}).json()["problems"][0]["code"] == "not_plain"
    assert api.post(address, {"text": "{"}).status_code == 422
    gone = make_version(project)
    answer = api.post(f"config/{gone.configuration_id}/check").json()
    assert answer["problems"][0]["code"] == "unknown_kind"
    assert ConfigVersion.objects.count() == 2


@pytest.mark.slow("1 s")
def test_activate_revert_and_deactivate(project: Project) -> None:
    api = editor(project)
    one, two = save(project, 1), save(project, 2)
    address = f"config/{one.configuration_id}"
    done = api.post(f"config/versions/{one.pk}/activate", {"note": "go", "instead_of": 0})
    assert done.status_code == 200, done.content
    assert (done.json()["number"], done.json()["previous"]) == (1, None)
    stale = api.post(f"config/versions/{two.pk}/activate", {"instead_of": 0})
    assert (stale.status_code, stale.json()["code"]) == (409, "activated_meanwhile")
    again = api.post(f"config/versions/{one.pk}/activate")
    assert again.json()["code"] == "already_active"
    assert api.post(f"config/versions/{two.pk}/activate").status_code == 200
    assert api.get(address).json()["active"] == 2
    operator = editor(project, Role.OPERATOR)
    back = operator.post(f"{address}/revert", {"note": "it broke"})
    assert (back.json()["number"], back.json()["previous"]) == (1, 2)
    three = save(project, 3)
    never = operator.post(f"{address}/revert", {"to": three.number})
    assert never.json()["code"] == "never_active"
    assert operator.post(f"{address}/revert", {"to": 2}).json()["number"] == 2
    assert operator.post(f"{address}/deactivate").status_code == 403
    assert operator.post(f"config/versions/{three.pk}/activate").status_code == 403
    ended = api.post(f"{address}/deactivate", {"note": "stop"})
    assert (ended.json()["number"], ended.json()["version"]) == (None, None)
    assert api.post(f"{address}/deactivate").json()["code"] == "not_active"
    history = api.get(f"config/activations?project={project.pk}&kind={KIND}").json()["results"]
    assert [each["number"] for each in history] == [None, 2, 1, 2, 1]
    assert [each["note"] for each in history][-1] == "go"


def test_a_repeated_call_has_one_effect(project: Project) -> None:
    version = save(project, 1)
    api = editor(project)
    address = f"config/versions/{version.pk}/activate"
    answers = [api.post(address, {}, idempotency_key="once") for _ in range(2)]
    assert [each.status_code for each in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()


@pytest.mark.slow("1 s")
def test_configurations_tell_who_runs_them(project: Project) -> None:
    version = save(project, 1)
    activate(version=version, actor=None, now=NOW)
    for name in ("a", "b"):
        identity, _daemon = make_process(name)
        follower = ConfigWatcher(
            kind=KIND, apply=lambda pk, active: None, clock=ManualClock(NOW), identity=identity
        )
        follower.setup()
    newer = save(project, 2)
    activate(version=newer, actor=None, now=NOW)
    follower.wake()
    follower.poll()
    api = editor(project, Role.VIEWER)
    address = f"config/{version.configuration_id}"
    assert api.get(address).json()["running"] == {"on": 1, "of": 2}
    behind, current = api.get(f"{address}/running").json()
    assert (behind["name"], behind["number"], behind["current"]) == ("a", 1, False)
    assert (current["name"], current["number"], current["current"]) == ("b", 2, True)
    with CaptureQueriesContext(connection) as few:
        assert len(api.get(f"config?project={project.pk}").json()["results"]) == 1
    for number in range(5):
        other = make_project()
        make_version(other)
        editor_everywhere = api.token
        assert editor_everywhere is not None
        editor_everywhere.user.memberships.create(project=other, role=Role.VIEWER)
        save(other, number)
    with CaptureQueriesContext(connection) as many:
        assert len(api.get("config").json()["results"]) == 11
    assert len(many) <= len(few) + 1
    assert Configuration.objects.count() == 11


def test_kinds_are_listed(project: Project) -> None:
    listed = editor(project, Role.VIEWER).get("config/kinds").json()
    assert {"name": KIND, "title": "Samples"} in listed


def test_lists_are_filtered(project: Project) -> None:
    save(project, 1)
    newest = save(project, 2)
    api = editor(project, Role.VIEWER)
    found = api.get(f"config/versions?kind={KIND}&project={project.pk}&number=2").json()
    assert [each["id"] for each in found["results"]] == [newest.pk]
    assert api.get("config/versions?kind=other").json()["results"] == []
    assert api.get(f"config/versions?number={10**12}").status_code == 400
    assert fresh(newest).newest == 2
