"""Rules of a project over REST: status, dry run and replay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.utils import timezone

from apps.access.states import Role
from apps.configcenter.models import Configuration
from apps.configcenter.services import deactivate
from apps.projects.models import Project
from apps.routing.engine.files.data import to_data
from apps.routing.engine.rules import RuleSet, Server
from apps.routing.models import RoutedItem, ServerReport
from apps.routing.services import report_router, report_servers
from apps.routing.states import ItemState
from tests.access.factories import Api, make_project, make_user
from tests.routing.admin.pages import OVERVIEW, address, html_of, person, text_of
from tests.routing.api.active_rules import CHANGES, REST, activate_rules, http_inbound
from tests.routing.factories import NOW, arrive, moved

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project(slug="ic")


@pytest.fixture
def api(project: Project) -> Api:
    return Api(make_user(roles={project: Role.VIEWER}))


def at(project: Project, more: str = "") -> str:
    return f"routing/projects/{project.pk}{more}"


def test_the_active_rules_in_effective_order_with_what_routers_say(
    project: Project, api: Api
) -> None:
    activate_rules(project, inbounds=(http_inbound("web", note="hello"),))
    (sent, parked) = arrive(project, 2)
    moved(sent, ItemState.DISPATCHED, outbound="changes")
    moved(parked, ItemState.PARKED, outbound="gone")
    arrive(project)
    lines = {
        "inbounds": {"web": {"taken": 4}},
        "outbounds": {
            "changes": {"problem": "refused", "problem_at_ms": 1000, "depth": 3, "sent": 2}
        },
        "selector_errors": {"changes": 5},
    }
    report_router(router="r1", reports={project.pk: (1, lines)}, now=timezone.now())
    report_router(router="gone", reports={project.pk: (1, lines)}, now=NOW.replace(year=2020))

    answer = api.get(at(project))

    told = answer.json()
    assert (told["project"], told["slug"], told["active"]) == (project.pk, "ic", 1)
    assert told["routers"] == [{"name": "r1", "rules_version": 1}]
    assert [(e["place"], e["name"]) for e in told["outbounds"]] == [(1, "changes"), (2, "rest")]
    first, second = told["outbounds"]
    assert (first["standing"]["depth"], first["standing"]["selector_errors"]) == (3, 5)
    assert first["standing"]["problem_at"] == "1970-01-01T00:00:01Z"
    assert first["counts"] == {"dispatched": 1}
    assert (second["standing"], second["counts"]) == (None, {})
    assert told["inbounds"][0]["standing"]["taken"] == 4
    assert told["inbounds"][0]["rule"]["note"] == "hello"
    assert (told["unrouted"], told["elsewhere"]) == ({"received": 1}, {"gone": {"parked": 1}})
    assert "hush" not in answer.content.decode()
    assert api.get(at(project), If_None_Match=answer["ETag"]).status_code == 304
    arrive(project)
    assert api.get(at(project), If_None_Match=answer["ETag"]).status_code == 200


def test_what_waits_and_what_it_lacks(project: Project, api: Api) -> None:
    activate_rules(project)
    for entry in arrive(project, 3):
        moved(entry, ItemState.PARKED, outbound="changes")
    lines = {"outbounds": {"changes": {"full": True, "problem": "away", "problem_at_ms": 1}}}
    report_router(router="r1", reports={project.pk: (1, lines)}, now=timezone.now())

    (told,) = api.get(at(project, "/parked")).json()

    assert (told["outbound"], told["parked"]) == ("changes", 3)
    assert (told["full"], told["problem"]) == (True, "away")


def test_the_books_and_their_audit(project: Project, api: Api) -> None:
    activate_rules(project)
    arrive(project, 3)

    told = api.get(at(project, "/books")).json()
    audited = api.get(at(project, "/audit")).json()

    assert (told["received"], told["in_flight"]["received"], told["balanced"]) == (3, 3, True)
    assert audited["holds"] is True
    assert audited["books"] == told
    RoutedItem.objects.all().delete()
    assert api.get(at(project, "/audit")).json()["holds"] is False


def test_a_project_whose_rules_were_switched_off(project: Project, api: Api) -> None:
    activate_rules(project)
    row = Configuration.objects.get(project=project)
    deactivate(configuration=row, actor=None, now=NOW)

    told = api.get(at(project)).json()

    assert (told["active"], told["outbounds"], told["server"]) == (None, [], None)
    operator = Api(make_user(roles={project: Role.OPERATOR}))
    for path in ("/task", "/explain", "/replay"):
        refused = operator.post(at(project, path))
        assert (refused.status_code, refused.json()["code"]) == (409, "no_active_rules")


def test_tasks_by_the_project_s_id(project: Project) -> None:
    activate_rules(project)
    operator = Api(make_user(roles={project: Role.OPERATOR}))

    answer = operator.post(at(project, "/task"), [{"data_type": "change"}, {}])

    assert [each["fate"] for each in answer.json()["items"]] == ["accepted", "accepted"]
    again = operator.post(at(project, "/task"), [{}], Idempotency_Key="k")
    assert operator.post(at(project, "/task"), [{}], Idempotency_Key="k").json() == again.json()
    assert RoutedItem.objects.count() == 3
    assert operator.post(at(project, "/task"), b"[").json()["code"] == "not_json"


def explain(api: Api, project: Project, **asked: Any) -> Any:
    answer = api.post(at(project, "/explain"), asked)
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_an_item_is_explained_by_active_saved_and_drafted_rules(project: Project, api: Api) -> None:
    old = activate_rules(project, outbounds=(REST,))
    activate_rules(project, inbounds=(http_inbound("web", selector=("rt",)),))
    item = {"data_type": "change"}

    assert explain(api, project, item=item)["decision"]["outbound"] == "changes"
    assert explain(api, project, item=item, inbound="web")["outcome"] == "filtered"
    assert explain(api, project, item=item, version=old.number)["decision"]["state"] == "rejected"
    rules = RuleSet(project="ic", outbounds=(replace(CHANGES, name="draft"),))
    drafted = explain(api, project, item=item, draft=to_data(rules))
    assert (drafted["version"], drafted["decision"]["outbound"]) == (0, "draft")
    assert explain(api, project, text="{", inbound="web")["refused"]["code"] == "not_json"
    assert not RoutedItem.objects.exists()


def test_questions_that_make_no_sense(project: Project, api: Api) -> None:
    activate_rules(project, inbounds=(http_inbound("web"),))

    def refused(**asked: Any) -> tuple[int, str]:
        answer = api.post(at(project, "/explain"), asked)
        return answer.status_code, answer.json()["code"]

    assert refused(version=7) == (404, "not_found")
    assert refused(inbound="wep") == (404, "inbound_not_found")
    assert refused(item={}, text="") == (400, "invalid")
    assert refused(version=1, draft={}) == (400, "invalid")
    assert refused(draft={"project": 7}) == (400, "invalid")


def test_a_version_is_replayed_before_it_is_activated(project: Project, api: Api) -> None:
    old = activate_rules(project, outbounds=(REST,))
    activate_rules(project)
    arrive(project, 3)

    answer = api.post(at(project, "/replay"), {"version": old.number})

    told = answer.json()
    assert (told["base"], told["draft"], told["items"]) == (2, 1, 3)
    (group,) = told["groups"]
    assert (group["difference"], group["count"]) == ("newly_rejected", 3)
    assert group["before"] == {"fate": "sent", "outbound": "changes"}
    assert len(told["rows"]) == 3
    assert api.post(at(project, "/replay"), {"state": "failed"}).json()["items"] == 0
    assert api.post(at(project, "/replay"), {"limit": 10**6}).status_code == 400


@pytest.mark.covers("S2.9")
def test_where_the_rules_own_server_listens_and_why_not(project: Project, api: Api) -> None:
    activate_rules(project, server=Server("10.8.6.222", 8526))
    reported = {project.pk: ("10.8.6.222:8526", "Address already in use")}
    report_servers(process="box:1", servers=reported, now=timezone.now())
    report_servers(process="box:2", servers=reported, now=NOW.replace(year=2020))

    told = api.get(at(project)).json()["server"]

    assert told["address"] == "10.8.6.222:8526"
    assert "ROUTING_SERVERS" in told["problem"]
    assert [each["process"] for each in told["processes"]] == ["box:1"]
    page = text_of(html_of(person(project, Role.VIEWER), address(OVERVIEW, project)))
    assert "Port 10.8.6.222:8526 of these rules is not open." in page
    report_servers(process="box:1", servers={}, now=timezone.now())
    assert not ServerReport.objects.exists()
