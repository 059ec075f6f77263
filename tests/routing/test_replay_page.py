"""The page "Replay": counts, input and permissions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from apps.access.states import Role
from apps.projects.models import Project
from apps.routing.engine.rules import Convert
from apps.routing.states import ItemState
from tests.access.factories import enter, make_project, make_user
from tests.routing.factories import arrive
from tests.routing.page_rules import (
    LOGS,
    NORTH,
    REST,
    SOUTH,
    SPARE,
    activate_rules,
    save_broken_rules,
    save_rules,
)
from tests.routing.test_explain_page import words

pytestmark = pytest.mark.django_db

ADDRESS = "/routing/replay"


@pytest.fixture
def project() -> Project:
    project = make_project()
    activate_rules(project)
    for name in ("GD", "GD", "BJ", "JS"):
        arrive(project, item={"province": name, "data_type": "change", "level": 9})
    return project


@pytest.fixture
def client(project: Project) -> Client:
    return enter(make_user(roles={project: Role.VIEWER}))


def read(client: Client, project: Project, **asked: Any) -> str:
    """Request the page with this query."""
    return words(client.get(ADDRESS, {"project": project.pk} | asked))


@pytest.mark.covers("S2.7")
def test_it_tells_what_a_draft_would_change(client: Client, project: Project) -> None:
    save_rules(project, outbounds=(replace(NORTH, selector=("province == 'GD'",)), SPARE))
    page = read(client, project, version=2)
    assert "4 of 4 tasks would be routed differently" in page
    assert "v2 compared with v1, 4 tasks in" in page
    assert "newly rejected north rejected: no rule matches 1" in page
    assert "newly rejected rest rejected: no rule matches 1" in page
    assert "routed elsewhere south north 2" in page
    answer = client.get(ADDRESS, {"project": project.pk, "version": 2})
    links = [row.of.task_uuid for row in answer.context["rows"]]
    assert len(links) == 4
    link = f"/routing/explain?project={project.pk}&amp;version=2&amp;item={links[0]}"
    assert link in answer.content.decode()
    assert client.get(link.replace("&amp;", "&")).status_code == 200


def test_it_says_what_it_cannot_show(client: Client, project: Project) -> None:
    drops = (*LOGS.convert, Convert("common.Delete", {"keys": ["province"]}))
    save_rules(project, inbounds=(replace(LOGS, convert=drops),))
    page = read(client, project, version=2)
    assert "No differences" in page
    assert "The converters of logs differ between the versions" in page
    assert "Converters are not run again" in page


def test_two_saved_versions_and_some_of_the_items(client: Client, project: Project) -> None:
    save_rules(project, outbounds=(REST,))
    save_rules(project, outbounds=(SOUTH, SPARE))
    page = read(client, project, version=3, base=2, limit=1)
    assert "v3 compared with v2, 1 tasks in" in page
    assert "newly rejected rest" in page
    only = read(client, project, version=3, base=2, state=ItemState.FAILED.value)
    assert "No tasks to replay" in only
    assert "4 tasks" in read(client, project, version=3, inbound="logs")
    assert "No tasks to replay" in read(client, project, version=3, outbound="south")


def test_the_first_offer_is_the_newest_that_is_not_active(client: Client, project: Project) -> None:
    save_rules(project, outbounds=(REST,))
    answer = client.get(ADDRESS, {"project": project.pk})
    assert answer.context["form"]["version"].value() == 2
    assert "found" not in answer.context


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    "asked",
    [
        {"version": "99"},
        {"version": "x"},
        {"version": ""},
        {"version": "1", "limit": "5001"},
        {"version": "1", "limit": "0"},
        {"version": "1", "state": "dead"},
        {"version": "1", "base": "99"},
        {"version": "1", "inbound": "x\x00"},
        {"version": "1", "outbound": "x" * 201},
    ],
    ids=str,
)
def test_a_bad_question_is_not_answered(
    client: Client, project: Project, asked: dict[str, str]
) -> None:
    answer = client.get(ADDRESS, {"project": project.pk} | asked)
    assert answer.status_code == 200
    assert answer.context["form"].errors
    assert "found" not in answer.context


def test_rules_that_cannot_be_run_say_why(client: Client, project: Project) -> None:
    save_broken_rules(project)
    assert "v2 cannot be run:" in read(client, project, version=2)


def test_names_are_text_and_never_markup(client: Client, project: Project) -> None:
    nasty = "<script>alert(1)</script>"
    arrive(project, inbound=nasty, item={"province": nasty})
    save_rules(project, outbounds=(replace(REST, name="n<b>x"),))
    answer = client.get(ADDRESS, {"project": project.pk, "version": 2})
    assert "<script>alert" not in answer.content.decode()
    assert "n<b>x" not in answer.content.decode()
    assert "n<b>x" in words(answer)


def test_nobody_replays_what_is_of_another_project(client: Client) -> None:
    other = make_project()
    activate_rules(other)
    assert client.get(ADDRESS, {"project": other.pk, "version": 1}).status_code == 404


def test_a_project_without_rules_has_the_page_too() -> None:
    bare = make_project()
    viewer = enter(make_user(roles={bare: Role.VIEWER}))
    assert "This project has no saved rules." in read(viewer, bare)
    assert viewer.post(ADDRESS, {"project": bare.pk}).status_code == 405
