"""Admin pages of configurations: content, actions and permissions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.configcenter.models import Activation, Configuration, ConfigVersion
from apps.configcenter.services import ConfigWatcher, activate
from apps.projects.models import Project
from tests.access.factories import enter, make_project, make_superuser, make_user, page
from tests.configcenter.factories import KIND, NOW, fresh, make_process, make_version, save
from tests.confirmation import confirm, press
from yardkit.clock import ManualClock

pytestmark = pytest.mark.django_db

ADD = "admin:configcenter_configuration_add"


@pytest.fixture
def project() -> Project:
    return make_project()


def person(project: Project, role: Role = Role.EDITOR) -> Client:
    return enter(make_user(roles={project: role}))


def text_of(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.content
    return str(answer.content.decode())


def new_version(project: Project, **more: Any) -> str:
    return reverse(ADD, query={"kind": KIND, "project": project.pk} | more)


def button(version: ConfigVersion, verb: str) -> str:
    if verb == "activate":
        return reverse("admin:configcenter_configversion_activate", args=[version.pk])
    return reverse(f"admin:configcenter_configuration_{verb}", args=[version.configuration_id])


def run_it(name: str, *, problem: str = "") -> ConfigWatcher:
    identity, _daemon = make_process(name)

    def use(project_id: int, active: Any) -> None:
        if problem:
            raise ValueError(problem)

    follower = ConfigWatcher(kind=KIND, apply=use, clock=ManualClock(NOW), identity=identity)
    follower.setup()
    return follower


# --- content -------------------------------------------------------------------------------


@pytest.mark.slow("2 s")
def test_the_pages_tell_what_is_active_and_who_runs_it(project: Project) -> None:
    one = save(project, 1, note="<b>first</b>")
    activate(version=one, actor=None, now=NOW)
    run_it("old")
    two = save(project, 2)
    activate(version=two, actor=None, now=NOW, note="because")
    run_it("new")
    run_it("bad", problem="<i>no queue</i>")
    client = person(project, Role.VIEWER)
    listed = text_of(client, page(Configuration, "changelist"))
    assert "1 of 3 on v2" in listed
    assert "Samples" in listed
    shown = text_of(client, page(Configuration, "change", one.configuration_id))
    assert "1 of 3 on v2" in shown
    for expected in ("&lt;b&gt;first&lt;/b&gt;", "v2: &lt;i&gt;no queue", "because", "limit 2"):
        assert expected in shown
    assert "<b>first</b>" not in shown
    # Viewers get no buttons.
    assert "Deactivate" not in shown
    assert "Revert" not in shown
    versions = text_of(client, page(ConfigVersion, "changelist"))
    assert versions.count("limit 1") == 1
    detail = text_of(client, page(ConfigVersion, "change", one.pk))
    # Default: comparison with the active version.
    assert "Changes from v2 to v1" in detail
    assert "1 of 3 on v2" in detail
    assert button(one, "activate") not in detail


def test_a_version_is_compared_with_any_other(project: Project) -> None:
    versions = [save(project, n) for n in (1, 2, 3)]
    client = person(project, Role.VIEWER)
    address = page(ConfigVersion, "change", versions[2].pk)
    assert "Changes from v2 to v3" in text_of(client, address)
    text = text_of(client, f"{address}?against=1")
    assert "Changes from v1 to v3" in text
    assert '<pre class="cy-before">1</pre>' in text
    assert '<pre class="cy-after">3</pre>' in text
    first = text_of(client, page(ConfigVersion, "change", versions[0].pk))
    assert "Compared with an empty configuration" in first
    for bad in ("9", "x", "%00", "-1", "9" * 30):
        assert client.get(f"{address}?against={bad}").status_code == 404


@pytest.mark.slow("1 s")
def test_a_kind_that_is_gone_is_still_shown(project: Project) -> None:
    version = make_version(project)
    client = person(project)
    assert "gone" in text_of(client, page(ConfigVersion, "change", version.pk))
    assert "gone" in text_of(client, page(Configuration, "change", version.configuration_id))
    refused = client.post(button(version, "activate"), follow=True)
    assert "Unknown kind" in refused.content.decode()


@pytest.mark.slow("1 s")
def test_things_of_other_projects_do_not_exist(project: Project) -> None:
    version = save(project, 1)
    client = person(make_project(), Role.ADMIN)
    for address in (
        page(Configuration, "change", version.configuration_id),
        page(ConfigVersion, "change", version.pk),
    ):
        assert client.get(address).status_code == 404
    for verb in ("activate", "revert", "deactivate"):
        assert client.post(button(version, verb)).status_code == 404
    for model in (Configuration, ConfigVersion):
        assert "limit 1" not in text_of(client, page(model, "changelist"))
        assert str(project) not in text_of(client, page(model, "changelist"))
    assert client.get(page(Configuration, "change", "nonsense")).status_code == 404


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("model", [Configuration, ConfigVersion])
def test_lists_ask_a_fixed_number_of_questions(model: Any) -> None:
    run_it("one")
    client = enter(make_superuser())
    address = page(model, "changelist")
    counts = []
    for _ in range(2):
        for _again in range(4):
            activate(version=save(make_project(), 1), actor=None, now=NOW)
        with CaptureQueriesContext(connection) as queries:
            text_of(client, address)
        counts.append(len(queries))
    assert counts[1] <= counts[0]
    assert counts[0] <= 14


# --- buttons ------------------------------------------------------------------------------------


@pytest.mark.slow("2 s")
def test_activate_revert_deactivate(project: Project) -> None:
    one, two = save(project, 1), save(project, 2)
    client = person(project)
    answer = client.post(
        button(one, "activate"), {"note": "go\x00", "instead_of": "0"}, follow=True
    )
    assert "v1 is now active." in answer.content.decode()
    assert Activation.objects.get().note == "go"
    stale = client.post(button(two, "activate"), {"instead_of": "0"}, follow=True)
    assert "Another version was activated meanwhile." in stale.content.decode()
    client.post(button(two, "activate"), {"instead_of": "1"})
    operator = person(project, Role.OPERATOR)
    shown = text_of(operator, page(Configuration, "change", one.configuration_id))
    assert button(one, "revert") in shown
    assert button(one, "deactivate") not in shown
    answer = operator.post(button(one, "revert"), {"instead_of": "2"}, follow=True)
    assert "v1 is now active." in answer.content.decode()
    answer = confirm(client, button(one, "deactivate"), follow=True)
    assert "Configuration deactivated" in answer.content.decode()
    assert fresh(one).active is None
    actions = AuditRecord.objects.filter(action__startswith="configcenter.").order_by("id")
    assert [each.action.split(".")[1] for each in actions if each.actor] == [
        "activate",
        "activate",
        "revert",
        "deactivate",
    ]


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    ("verb", "needed"),
    [("activate", Role.EDITOR), ("revert", Role.OPERATOR), ("deactivate", Role.EDITOR)],
)
@pytest.mark.parametrize("held", list(Role))
def test_who_may_press(project: Project, verb: str, needed: Role, held: Role) -> None:
    version = save(project, 1)
    client = person(project, held)
    assert client.get(button(version, verb)).status_code == 405
    expected = 302 if held.covers(needed) else 403
    assert press(client, button(version, verb)).status_code == expected


# --- a new version ------------------------------------------------------------------------------


@pytest.mark.slow("1 s")
def test_a_version_is_typed_looked_at_and_saved(project: Project) -> None:
    client = person(project)
    assert "Select a configuration" in text_of(client, reverse(ADD))
    assert 'name="text"' in text_of(client, new_version(project))
    form = {"text": '{\r\n "limit": 0,\r\n "名": "值"}', "note": "first", "based_on": "0"}
    looked = client.post(new_version(project), form | {"look": "1"}).content.decode()
    assert "(not saved)" in looked
    assert "limit: nothing will go through" in looked
    assert "值" in looked
    assert not ConfigVersion.objects.exists()
    answer = client.post(new_version(project), form | {"activate": "on"}, follow=True)
    version = ConfigVersion.objects.get()
    assert (version.data, version.note) == ({"limit": 0, "名": "值"}, "first")
    assert fresh(version).active == version
    assert "v1 saved." in answer.content.decode()
    again = client.post(new_version(project), form | {"activate": "on", "based_on": "1"})
    assert again.headers["Location"] == page(ConfigVersion, "change", version.pk)
    assert Activation.objects.count() == ConfigVersion.objects.count() == 1


def test_the_form_begins_with_the_newest_or_with_another(project: Project) -> None:
    save(project, 11)
    save(project, 22)
    client = person(project)
    newest = text_of(client, new_version(project))
    assert "&quot;limit&quot;: 22" in newest
    assert 'name="based_on" value="2"' in newest
    older = text_of(client, new_version(project, version=1))
    assert "&quot;limit&quot;: 11" in older
    assert 'name="based_on" value="2"' in older
    assert client.get(new_version(project, version=9)).status_code == 404


@pytest.mark.slow("3 s")
@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"text": "{"}, "line 1, column 2: not JSON"),
        ({"text": '{"limit": -3}'}, "limit: -3 is less than nothing"),
        ({"text": '{"limit": 1}', "based_on": "0"}, "Another version was saved meanwhile"),
        ({"text": ""}, "This field is required"),
        ({"text": '{"a": "x\x00"}'}, "Null characters are not allowed"),
    ],
)
@pytest.mark.parametrize("look", [{}, {"look": "1"}])
def test_what_is_refused_stays_in_the_form(
    project: Project, form: dict[str, str], told: str, look: dict[str, str]
) -> None:
    save(project, 5)
    answer = person(project).post(new_version(project), {"based_on": "1"} | form | look)
    if look and "meanwhile" in told:
        # The preview compares with the newest version, whatever ``based_on`` is.
        told = "Preview of the changes"
    assert answer.status_code == 200
    assert told in answer.content.decode()
    assert ConfigVersion.objects.count() == 1


def test_only_editors_get_the_form_and_only_their_projects(project: Project) -> None:
    assert person(project, Role.OPERATOR).get(reverse(ADD)).status_code == 403
    elsewhere = person(make_project(name="My own"))
    text = text_of(elsewhere, reverse(ADD))
    assert "My own" in text
    assert str(project) not in text
    refused = elsewhere.post(new_version(project), {"text": json.dumps({}), "based_on": "0"})
    assert "Select a configuration" in refused.content.decode()
    assert not ConfigVersion.objects.exists()


def test_nothing_is_deleted_here(project: Project) -> None:
    version = save(project, 1)
    client = enter(make_superuser())
    assert client.get(page(ConfigVersion, "delete", version.pk)).status_code == 403
    assert client.get(page(Configuration, "delete", version.configuration_id)).status_code == 403
    assert client.get(page(ConfigVersion, "add")).status_code == 403
