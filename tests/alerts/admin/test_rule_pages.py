"""Admin pages of alert rules: state, form, preview and mute."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.access.states import Role
from apps.alerts.models import Notice, RuleMute
from apps.alerts.queries.rules import active_rulebooks
from apps.alerts.services.rule_versions import active_data
from apps.alerts.states import NoticeKind
from apps.configcenter.models import Configuration
from apps.configcenter.services import save_version
from apps.jobs.states import RunState
from apps.projects.models import Project
from apps.queuestats.services import record_gauges
from tests.access.factories import enter, make_project, make_superuser, make_user
from tests.alerts.admin.test_pages import login, person, text_of
from tests.alerts.factories import NOW, make_channel, make_incident
from tests.alerts.monitor_harness import use_rules
from tests.confirmation import confirm
from tests.jobs.factories import make_job, make_run

pytestmark = pytest.mark.django_db
LIST = "/admin/alerts/rulemute/"
RULE = f"{LIST}rule/"
LONG: dict[str, Any] = {
    "name": "log queue too long",
    "enabled": "on",
    "event": "",
    "series": "queue.ready",
    "label": "crawlyard.logs",
    "kind": "above",
    "limit": "10000",
    "for_seconds": "60",
    "recover": "8000",
    "severity": "critical",
    "tell": ["ops", "oncall"],
    "repeat_seconds": "3600",
    "step_1_after": "900",
    "step_1_tell": "oncall",
    "step_1_severity": "critical",
}


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def editor(project: Project) -> Client:
    make_channel(name="ops")
    make_channel(name="oncall")
    return person(project, Role.EDITOR)


@pytest.mark.slow("1 s")
def test_built_in_rules_are_shown_to_all_and_changed_by_the_platforms_people(
    project: Project,
) -> None:
    viewer = person(project, Role.VIEWER)
    text = text_of(viewer.get(LIST))
    assert "built in" in text
    assert "New rule" not in text
    assert viewer.get(f"{RULE}?project={project.pk}").status_code == 403
    assert viewer.get(f"{RULE}?project=platform").status_code == 403
    assert viewer.get(RULE).status_code == 403
    root = login(make_superuser())
    assert "the platform, for all projects" in text_of(root.get(RULE))
    assert root.get(f"{LIST}live").status_code == 200
    name = active_rulebooks().platform.rules or None
    assert name is None


@pytest.mark.slow("2 s")
def test_a_rule_leads_to_its_series_and_the_list_shows_one_project(project: Project) -> None:
    other = make_project()
    gauges = {("queue.ready", each.pk, "a&b"): 11.0 for each in (project, other)}
    record_gauges(gauges, now=timezone.now())
    use_rules({"name": "depth", "series": "queue.ready", "when": {"above": 10}, "tell": ["ops"]})
    use_rules({"name": "own", "series": "queue.ready", "when": {"above": 1}}, project=other.pk)
    viewer, root = person(project, Role.VIEWER), login(make_superuser())
    page = viewer.get(LIST)
    link = f"{LIST}series?project={project.pk}&amp;name=queue.ready&amp;label=a%26b"
    assert link in page.content.decode()
    assert "ops" not in text_of(page), "channels of the platform are its people's"
    assert "own" not in [each["title"] for each in page.context["lines"]]
    shown = viewer.get(link.replace("&amp;", "&")).content.decode()
    assert f"/api/v1/projects/{project.pk}/series/points?name=queue.ready&amp;label=a%26b" in shown
    for query in (
        f"project={other.pk}&name=queue.ready&label=a%26b",
        "project=platform&name=queue.ready&label=a%26b",
        f"project={project.pk}&name=no&label=",
        f"project={project.pk}&name=%00",
        "project=x",
        "",
    ):
        assert viewer.get(f"{LIST}series?{query}").status_code == 404
    rows = root.get(f"{LIST}?project={other.pk}").context["lines"]
    assert {each["row"].of for each in rows if each["row"].watched} == {other.pk}
    assert "own" in [each["title"] for each in rows]
    rows = root.get(f"{LIST}?project={project.pk}").context["lines"]
    assert "own" not in [each["title"] for each in rows]
    assert viewer.get(f"{LIST}live?project={other.pk}").context["lines"] == []


@pytest.mark.slow("1 s")
def test_a_rule_is_made_by_the_form(project: Project, editor: Client) -> None:
    address = f"{RULE}?project={project.pk}"
    assert "Alert when the value" in text_of(editor.get(address))
    answer = editor.post(address, LONG, follow=True)
    assert "log queue too long saved and active: version 1" in text_of(answer)
    assert active_data(project.pk)[0] == {
        "rules": [
            {
                "name": "log queue too long",
                "series": "queue.ready",
                "label": "crawlyard.logs",
                "when": {"above": 10000, "for_seconds": 60},
                "recover": {"below": 8000},
                "severity": "critical",
                "tell": ["ops", "oncall"],
                "repeat_seconds": 3600,
                "escalate": [{"after_seconds": 900, "tell": ["oncall"], "severity": "critical"}],
            }
        ]
    }
    # Saving the same rule from its own page creates no version.
    own = f"{address}&name=log+queue+too+long"
    assert 'value="10000"' in editor.get(own).content.decode()
    editor.post(own, LONG | {"based_on": "1"})
    assert Configuration.objects.get().newest == 1
    editor.post(own, LONG | {"limit": "9000", "based_on": "1", "name": "queue too long"})
    (rule,) = active_rulebooks().of(project.pk).rules
    assert (rule.name, rule.when.above) == ("queue too long", 9000)


@pytest.mark.slow("3 s")
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"limit": ""}, "exactly one is required"),
        ({"limit": "many"}, "Enter a number"),
        ({"series": ""}, "the name of a series"),
        ({"recover": "20000"}, "not higher than when.above"),
        ({"tell": "No Channel"}, "Select a valid choice"),
        ({"event": "no.such"}, "is not one of the available choices"),
        ({"repeat_seconds": "1"}, "seconds, from 60"),
        ({"step_1_after": ""}, "required: a number of seconds"),
        ({"name": " "}, "required"),
    ],
)
def test_what_makes_no_sense_stands_at_its_field(
    project: Project, editor: Client, changed: dict[str, str], said: str
) -> None:
    text = text_of(editor.post(f"{RULE}?project={project.pk}", LONG | changed))
    assert said in text
    assert "Not saved" in text
    assert not Configuration.objects.exists()


def test_a_rule_is_tried_on_the_last_day_before_it_is_saved(
    project: Project, editor: Client
) -> None:
    job = make_job(project=project, name="news")
    ended = timezone.now() - timedelta(hours=2)
    run = make_run(job=job, state=RunState.FAILED, created_at=ended, ended_at=ended)
    run.moves.create(from_state=RunState.RUNNING, to_state=RunState.FAILED, at=ended)
    asked = {
        "name": "runs fail",
        "enabled": "on",
        "event": "run.failed",
        "match": "job: news*",
        "kind": "above",
        "severity": "warning",
        "look": "1",
    }
    text = text_of(editor.post(f"{RULE}?project={project.pk}", asked))
    assert "Preview: last 24 hours" in text
    assert f"job:{job.pk}" in text
    assert not Configuration.objects.exists()
    text = text_of(editor.post(f"{RULE}?project={project.pk}", asked | {"match": "job: other"}))
    assert "No matches." in text


@pytest.mark.slow("1 s")
def test_a_built_in_rule_is_changed_for_the_platform() -> None:
    root = login(make_superuser())
    make_channel(name="ops")
    address = f"{RULE}?project=platform&name=daemon+silent"
    page = text_of(root.get(address))
    assert "The subject of a built-in rule cannot be changed" in page
    root.post(
        address, {"name": "daemon silent", "kind": "above", "severity": "warning", "tell": "ops"}
    )
    data = active_data(None)[0]
    assert data["rules"][0]["name"] == "daemon silent"
    assert data["rules"][0]["enabled"] is False
    assert "event" not in data["rules"][0]
    answer = confirm(root, f"{LIST}remove", {"rule": "platform|daemon silent"}, follow=True)
    assert " removed." in text_of(answer)
    assert active_data(None)[0] == {"rules": []}


@pytest.mark.slow("1 s")
def test_what_others_saved_meanwhile_is_not_lost(project: Project, editor: Client) -> None:
    address = f"{RULE}?project={project.pk}"
    editor.post(address, LONG)
    editor.post(address, LONG | {"name": "second", "based_on": "1"})
    text = text_of(editor.post(address, LONG | {"name": "third", "based_on": "1"}))
    assert "third holds" not in text
    assert [rule.name for rule in active_rulebooks().of(project.pk).rules] == [
        "log queue too long",
        "second",
    ]
    text = text_of(editor.post(address, LONG | {"based_on": "2"}))
    assert "A rule with this name already exists" in text
    save_version(kind="alerts", project_id=project.pk, data={"rules": []}, actor=None, now=NOW)
    assert "v3 is newer but not active" in text_of(editor.get(address))


@pytest.mark.slow("2 s")
def test_rules_are_muted_and_tested(project: Project, editor: Client) -> None:
    make_channel(name="ops", project=project)
    editor.post(f"{RULE}?project={project.pk}", LONG)
    make_incident(project=project, rule="log queue too long", source="queue.ready")
    rule = {"rule": f"{project.pk}|log queue too long"}
    assert "1 open" in text_of(editor.get(LIST))
    text = text_of(editor.post(f"{LIST}mute", rule | {"minutes": "60"}, follow=True))
    assert "for 60 min" in text
    assert "muted until" in text
    assert RuleMute.objects.get().project == project
    editor.post(f"{LIST}mute", rule | {"minutes": "0"})
    editor.post(f"{LIST}mute", rule | {"minutes": "9999999999"})
    assert "is no longer muted" in text_of(editor.post(f"{LIST}unmute", rule, follow=True))
    assert not RuleMute.objects.exists()
    text = text_of(editor.post(f"{LIST}test", rule, follow=True))
    assert "1 test queued" in text, "a channel of the platform is not theirs to try"
    assert Notice.objects.get().kind == NoticeKind.TEST


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("verb", ["mute", "unmute", "remove", "test"])
def test_buttons_are_for_those_who_may(project: Project, verb: str) -> None:
    viewer, stranger = person(project, Role.VIEWER), person(make_project(), Role.ADMIN)
    for client in (viewer, stranger):
        for scope in (str(project.pk), "platform"):
            answer = client.post(f"{LIST}{verb}", {"rule": f"{scope}|x", "minutes": "60"})
            assert answer.status_code == 403
        for wrong in ("", "x", "x|y", f"{project.pk}|"):
            assert client.post(f"{LIST}{verb}", {"rule": wrong}).status_code == 404
    assert viewer.get(f"{LIST}{verb}").status_code == 405
    assert stranger.get(f"{RULE}?project={project.pk}").status_code == 404


def test_an_address_of_no_rule_is_not_found(editor: Client) -> None:
    for name in ("new", "7/change/"):
        assert editor.get(f"{LIST}{name}", follow=True).status_code == 404


@pytest.mark.covers("UX.6")
def test_recipients_are_picked_from_channels_and_people(project: Project) -> None:
    editor = make_user(roles={project: Role.EDITOR}, email="ann@example.com")
    make_channel(name="slack", project=project)
    make_channel(name="elsewhere", project=make_project())
    use_rules({"name": "mine", "event": "run.failed", "tell": ["gone"]}, project=project.pk)
    client, address = enter(editor), f"{RULE}?project={project.pk}&name=mine"
    page = client.get(address).content.decode()
    assert 'value="slack"' in page
    assert f'value="@{editor.username}"' in page
    assert 'value="gone" id' in page, "a stored name stays"
    assert 'value="elsewhere"' not in page
    typed = {"name": "mine", "enabled": "on", "event": "run.failed", "severity": "warning"}
    typed |= {"kind": "above", "tell": ["slack", f"@{editor.username}"]}
    assert client.post(address, typed).status_code == 302
    (rule,) = active_rulebooks().of(project.pk).rules
    assert rule.tell == ("slack", f"@{editor.username}")


@pytest.mark.covers("UX.6")
@pytest.mark.parametrize(
    ("name", "shown"),
    [("run failed", "times"), ("daemon silent", "for_seconds"), ("log lines waiting", "limit")],
)
def test_a_rule_shows_the_fields_of_what_it_watches(name: str, shown: str) -> None:
    page = login(make_superuser()).get(f"{RULE}?project=platform&name={name}").content.decode()
    parts = {
        field: "hidden" in page[: page.index(f'id="id_{field}"')].rpartition("data-of=")[2][:40]
        for field in ("times", "for_seconds", "limit")
    }
    assert not parts[shown]
    assert parts["limit"] is (shown != "limit"), "events have no threshold"
    assert parts["times"] is (shown != "times")
