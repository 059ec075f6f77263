"""Frontiers made, changed and deleted over REST, and how they stand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.models import Project
from apps.seeds.models import Frontier, SegmentReport
from tests.access.factories import Api, make_project, make_user
from tests.seeds.api.conftest import Caller, Service
from tests.seeds.factories import make_frontier

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def editor(project: Project) -> Api:
    return Api(make_user(roles={project: Role.EDITOR}))


def test_a_frontier_is_made_and_changed(editor: Api, project: Project) -> None:
    body = {"project": project.pk, "name": "news", "segments": "week", "time_zone": "Asia/Shanghai"}
    made = editor.post("frontiers", body)
    assert made.status_code == 201, made.content
    told = made.json()
    assert (told["keys"], told["lease_seconds"], told["is_frozen"]) == ("whole", 300, False)
    path = f"frontiers/{told['id']}"
    shown = editor.get(path)
    changed = editor.patch(path, {"is_paused": True}, If_Match=shown["ETag"])
    assert changed.json()["is_paused"] is True
    assert editor.patch(path, {"is_paused": False}, If_Match=shown["ETag"]).status_code == 412
    refused = editor.patch(path, {"segments": "day"})
    assert (refused.status_code, refused.json()["code"]) == (409, "rules_need_move")
    actions = AuditRecord.objects.filter(object_type="seeds.frontier").values_list("action")
    assert set(actions) == {("seeds.add_frontier",), ("seeds.change_frontier",)}


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": "news"}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "n" * 101}, "name"),
        ({"segments": "fortnight"}, "segments"),
        ({"segments": "days:0"}, "segments"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"keys": "guess"}, "keys"),
        ({"keys": "page", "ignored_parameters": ["t"]}, "keys"),
        ({"ignored_parameters": [""], "keys": "canonical"}, "ignored_parameters.0"),
        ({"max_retry": 1001}, "max_retry"),
        ({"max_retry": -1}, "max_retry"),
        ({"lease_seconds": 0}, "lease_seconds"),
        ({"expected_seeds": 10**12}, "expected_seeds"),
        ({"false_positive_rate": 0.9}, "false_positive_rate"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else None,
)
def test_a_frontier_that_cannot_be(
    editor: Api, frontier: Frontier, wrong: dict[str, Any], field: str
) -> None:
    body = {"project": frontier.project_id, "name": "other", **wrong}
    refused = editor.post("frontiers", body)
    assert refused.status_code == 400, refused.content
    assert field in refused.json()["fields"]


def test_a_frontier_stays_in_its_project(frontier: Frontier) -> None:
    other = make_project()
    both = Api(make_user(roles={frontier.project: Role.EDITOR, other: Role.EDITOR}))
    refused = both.patch(f"frontiers/{frontier.pk}", {"project": other.pk})
    assert (refused.status_code, [*refused.json()["fields"]]) == (400, ["project"])


def test_frontiers_are_listed_by_what_they_are(editor: Api, project: Project) -> None:
    one = make_frontier(project, name="news")
    make_frontier(project, name="shops", is_paused=True)
    make_frontier()
    assert [each["name"] for each in editor.get("frontiers").json()["results"]] == ["shops", "news"]
    paused = editor.get("frontiers?is_paused=true").json()["results"]
    assert [each["name"] for each in paused] == ["shops"]
    named = editor.get(f"frontiers?name=EW&project={project.pk}").json()["results"]
    assert [each["id"] for each in named] == [one.pk]
    with CaptureQueriesContext(connection) as context:
        editor.get("frontiers")
    assert len(context) <= 4, [each["sql"][:80] for each in context]


@pytest.mark.slow("3 s")
def test_only_an_empty_frontier_is_deleted(
    service: Service, caller: Caller, frontier: Frontier
) -> None:
    caller.ask("add", "x")
    refused = caller.delete(caller.base)
    assert (refused.status_code, refused.json()["code"]) == (409, "frontier_has_seeds")
    caller.ask("forget", {"key": "x"})
    assert caller.delete(caller.base, If_Match='"old"').status_code == 412
    assert caller.delete(caller.base).status_code == 204
    assert not Frontier.objects.exists()


def test_reports_are_shown_by_the_page(caller: Caller, frontier: Frontier) -> None:
    for segment in (0, 1000, 2000):
        SegmentReport.objects.create(
            frontier=frontier,
            segment=segment,
            added=5,
            pending=4,
            failed=1,
            duplicates=2,
            filter_expected=100,
            filter_bytes=120,
            filter_fill=0.1,
            filter_rate=0.001,
            reported_at=NOW,
        )
    first = caller.show("stats?limit=2")
    assert [each["segment"] for each in first["results"]] == [0, 1000]
    assert (first["segments_in_all"], first["next"], first["live"]) == (3, "1000", False)
    assert (first["totals"]["added"], first["totals"]["duplicates"]) == (15, 6)
    shown = first["results"][1]
    assert shown["begins_at"] == "1970-01-01T00:00:01.000Z"
    assert shown["reported_at"] == "2026-03-01T00:00:00Z"
    assert (shown["balances"], shown["filter"]["bytes"]) == (True, 120)
    last = caller.show("stats?limit=2&after=1000")
    assert ([each["segment"] for each in last["results"]], last["next"]) == ([2000], None)
    for bad in ("after=x", "limit=0", "live=perhaps"):
        caller.show(f"stats?{bad}", 400)
    with CaptureQueriesContext(connection) as context:
        caller.show("stats")
    assert len(context) <= 6, [each["sql"][:80] for each in context]


@pytest.mark.covers("S3.7", "S3.20")
def test_the_service_tells_how_it_is_now(either_service: Service, caller: Caller) -> None:
    caller.ask("add", ["a", "b", "b", {"data": "c", "active_at": "2026-03-01"}])
    caller.ask("lease", {"limit": 1})
    assert caller.show("stats")["results"] == []
    now = caller.show("stats?live=true")
    assert (now["live"], now["balances"]) == (True, True)
    assert [each["begins_at"] for each in now["results"]] == [None, "2026-03-01T00:00:00.000Z"]
    books = now["results"][0]["books"]
    assert (books["added"], books["duplicates"], books["pending"], books["leased"]) == (2, 1, 1, 1)
    assert now["totals"]["added"] == 3
    assert 0 <= now["results"][0]["filter"]["false_positive_rate"] < 1
    assert [each["segment"] for each in caller.show("stats?live=1&limit=1")["results"]] == [0]
