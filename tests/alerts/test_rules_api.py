"""REST endpoints of alert rules: state and preview."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.access.states import Role
from apps.alerts.models import Incident, Notice
from apps.alerts.queries.rules import rule_statuses
from apps.projects.models import Project
from apps.queuestats.services import record_gauges
from tests.access.factories import Api, make_project, make_user
from tests.alerts.factories import NOW
from tests.alerts.monitor_harness import Events, Rig, use_rules, with_source

pytestmark = pytest.mark.django_db

DEPTH: dict[str, Any] = {
    "name": "depth",
    "series": "queue.ready",
    "when": {"above": 10, "for_seconds": 60},
    "tell": ["ops"],
}


@pytest.fixture
def project() -> Project:
    return make_project()


def viewer(project: Project) -> Api:
    return Api(make_user(username=f"viewer-{project.pk}", roles={project: Role.VIEWER}))


def boss() -> Api:
    return Api(make_user(username="boss", is_superuser=True, is_staff=True))


def rules(api: Api) -> dict[str, Any]:
    answer = api.get("alert-rules")
    assert answer.status_code == 200, answer.content
    return {each["name"]: each for each in answer.json()["results"]}


def measured(name: str, project: int | None, values: list[tuple[int, float]]) -> datetime:
    """Store gauge samples by age in minutes, as the monitor does."""
    now = timezone.now()
    for minutes, value in values:
        readings = {(name, project, "logs"): value, ("monitor.sampled", None, ""): 1.0}
        record_gauges(readings, now=now - timedelta(minutes=minutes))
    return now


def test_rules_tell_how_they_stand(project: Project) -> None:
    use_rules(DEPTH)
    use_rules(DEPTH | {"name": "mine", "when": {"above": 99}}, project=project.pk)
    measured("queue.ready", project.pk, [(3, 50), (2, 50), (1, 50), (0, 50)])
    found = rules(viewer(project))
    # Samples a minute apart leave the time between them unknown.
    assert (found["depth"]["state"], found["depth"]["value"]) == ("pending", 50)
    assert found["depth"]["tell"] == []
    assert (found["mine"]["state"], found["mine"]["tell"]) == ("ok", ["ops"])
    assert found["agent silent"]["state"] == "off"
    assert rules(boss())["depth"]["tell"] == ["ops"]
    stranger = rules(viewer(make_project()))
    assert "mine" not in stranger
    assert (stranger["depth"]["state"], stranger["depth"]["watched"]) == ("unknown", 0)


def test_questions_do_not_grow_with_the_rules(project: Project) -> None:
    user = make_user(username="v", roles={project: Role.VIEWER})
    use_rules(DEPTH)
    with CaptureQueriesContext(connection) as few:
        rule_statuses(user, now=NOW)
    use_rules(*(DEPTH | {"name": f"d{n}", "series": f"s.n{n}"} for n in range(40)))
    with CaptureQueriesContext(connection) as many:
        rule_statuses(user, now=NOW)
    assert len(many) == len(few) <= 12


def test_sources_are_listed_for_forms(project: Project) -> None:
    answer = viewer(project).get("alert-sources").json()["results"]
    found = {each["name"]: each for each in answer}
    assert found["run.failed"]["facts"] == ["job", "run", "reason"]
    assert not found["run.failed"]["lasting"]
    assert found["agent.silent"]["lasting"]


def test_what_a_rule_on_a_series_would_have_found(project: Project) -> None:
    values = [(n, 50.0 if 20 < n <= 30 else 1.0) for n in range(60, -1, -1)]
    measured("queue.ready", project.pk, values)
    body = {"project": project.pk, "rule": DEPTH, "seconds": 3600}
    answer = viewer(project).post("alert-rules/preview", body)
    assert answer.status_code == 200, answer.content
    told = answer.json()
    (found,) = told["found"]
    assert (told["watched"], found["key"], found["value"]) == (1, "logs", 50)
    lasted = datetime.fromisoformat(found["ended_at"]) - datetime.fromisoformat(found["began_at"])
    assert timedelta(minutes=8) <= lasted <= timedelta(minutes=12)
    assert not Incident.objects.exists()
    assert not Notice.objects.exists()


def test_what_a_rule_on_events_would_have_found(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    source: Events = with_source(monkeypatch, Events())
    now = timezone.now()
    for number, minutes in enumerate((50, 9, 8, 7)):
        source.add(number, now - timedelta(minutes=minutes), project=project.pk)
    source.add(9, now, project=make_project().pk)
    rule = {"name": "x", "event": "test.event", "when": {"times": 3, "in_seconds": 300}}
    told = viewer(project).post("alert-rules/preview", {"project": project.pk, "rule": rule})
    (found,) = told.json()["found"]
    assert (found["times"], found["facts"], told.json()["watched"]) == (1, {"who": "k"}, 4)


@pytest.mark.parametrize("rule", [{}, {"name": "x"}, {"name": "x", "series": "a.b", "when": 1}])
def test_a_bad_rule_is_refused_with_its_places(project: Project, rule: Any) -> None:
    answer = viewer(project).post("alert-rules/preview", {"project": project.pk, "rule": rule})
    assert answer.status_code == 422
    assert answer.json()["code"] == "bad_rule"


def test_only_who_sees_everything_asks_for_the_platform(project: Project) -> None:
    body = {"project": None, "rule": DEPTH}
    api = viewer(project)
    assert api.post("alert-rules/preview", body).status_code == 403
    assert boss().post("alert-rules/preview", body).status_code == 200
    other = {"project": make_project().pk, "rule": DEPTH}
    assert api.post("alert-rules/preview", other).status_code == 400


def test_the_monitor_and_the_page_agree(project: Project) -> None:
    use_rules(DEPTH)
    rig = Rig(gauges={("queue.ready", project.pk, "logs"): 50})
    rig.run(70)
    user = make_user(username="v", roles={project: Role.VIEWER})
    (found,) = [each for each in rule_statuses(user, now=rig.now()) if each.rule.name == "depth"]
    assert (found.state, found.open_count, found.label) == ("firing", 1, "logs")
