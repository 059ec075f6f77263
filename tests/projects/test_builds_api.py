"""Builds and images over REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.access.states import Role
from apps.projects.models import Build
from apps.projects.states import BuildState
from tests.access.factories import Api, make_user
from tests.projects.build_factories import NOW, TAG, make_build, make_git_project, make_image

pytestmark = pytest.mark.django_db


def operator(*builds: Any) -> Api:
    return Api(make_user(roles={each.project: Role.OPERATOR for each in builds}))


def test_a_tag_is_built_once(client: Any) -> None:
    project = make_git_project()
    api = Api(make_user(roles={project: Role.OPERATOR}))
    made = api.post("/api/v1/builds", {"project": project.pk, "tag": TAG})
    assert made.status_code == 201, made.content
    shown = made.json()
    assert (shown["state"], shown["name"], shown["version"]) == ("queued", "news", "1.0")
    assert shown["stream"] == f"build:{shown['id']}"
    again = api.post("/api/v1/builds", {"project": project.pk, "tag": TAG})
    assert (again.status_code, again.json()["code"]) == (409, "already_built")
    # Too long for any tag, and none that the project's template reads.
    for tag, status in (("x" * 251, 400), *((each, 422) for each in ("v1", "$(id)", "-u", "a\nb"))):
        refused = api.post("/api/v1/builds", {"project": project.pk, "tag": tag})
        assert refused.status_code == status, refused.content
        assert "tag" in refused.json()["fields"]
    assert Build.objects.count() == 1


def test_roles_and_other_projects() -> None:
    project, other = make_git_project(), make_git_project()
    body = {"project": project.pk, "tag": TAG}
    viewer = Api(make_user(roles={project: Role.VIEWER, other: Role.OPERATOR}))
    assert viewer.post("/api/v1/builds", body).status_code == 403
    stranger = Api(make_user(roles={other: Role.ADMIN}))
    refused = stranger.post("/api/v1/builds", body)
    assert (refused.status_code, set(refused.json()["fields"])) == (400, {"project"})
    disabled = make_git_project(builds_enabled=False)
    api = Api(make_user(roles={disabled: Role.OPERATOR}))
    answer = api.post("/api/v1/builds", {"project": disabled.pk, "tag": TAG})
    assert (answer.status_code, answer.json()["code"]) == (409, "builds_disabled")


@pytest.mark.parametrize(
    ("state", "status", "after"),
    [
        (BuildState.QUEUED, 200, "cancelled"),
        (BuildState.RUNNING, 200, "cancelling"),
        (BuildState.CANCELLING, 409, "cancelling"),
        (BuildState.SUCCEEDED, 409, "succeeded"),
    ],
)
def test_cancel(state: BuildState, status: int, after: str) -> None:
    build = make_build(state=state)
    answer = operator(build).post(f"/api/v1/builds/{build.pk}/cancel")
    assert answer.status_code == status
    build.refresh_from_db()
    assert build.state == after
    if status == 200:
        assert answer.json()["state"] == after


def test_rebuild() -> None:
    build = make_build(state=BuildState.FAILED)
    api = operator(build)
    answer = api.post(f"/api/v1/builds/{build.pk}/rebuild", {"no_cache": False})
    assert answer.status_code == 201, answer.content
    assert (answer.json()["repeats"], answer.json()["no_cache"]) == (build.pk, False)
    active = answer.json()["id"]
    assert api.post(f"/api/v1/builds/{active}/rebuild").json()["code"] == "build_active"
    assert api.post(f"/api/v1/builds/{build.pk}/rebuild").json()["code"] == "already_built"


def test_lists_are_filtered_and_cheap() -> None:
    project = make_git_project()
    for number, state in enumerate([BuildState.FAILED, BuildState.LOST, BuildState.SUCCEEDED]):
        row = make_build(project=project, state=state, tag=f"prod/news/{number}")
        if state == BuildState.SUCCEEDED:
            image = make_image(project=project, build=row)
    gone = make_image(project=project, tag="old", removed_at=NOW)
    api = Api(make_user(roles={project: Role.VIEWER}))

    def ids(path: str) -> list[int]:
        answer = api.get(path)
        assert answer.status_code == 200, answer.content
        return [each["id"] for each in answer.json()["results"]]

    assert len(ids("/api/v1/builds?state=failed&state=lost")) == 2
    assert len(ids("/api/v1/builds?tag=prod/news/1")) == 1
    assert ids("/api/v1/images?available=true") == [image.pk]
    assert ids("/api/v1/images?available=false") == [gone.pk]
    assert ids(f"/api/v1/images?project={project.pk}&tag=old") == [gone.pk]
    assert api.get("/api/v1/images?project=x").status_code == 400
    with CaptureQueriesContext(connection) as queries:
        shown = api.get("/api/v1/builds").json()["results"]
    assert [each["image"] for each in shown] == [image.pk, None, None]
    assert len(queries) <= 12
    detail = api.get(f"/api/v1/images/{image.pk}").json()
    assert detail["reference"] == "crawlyard/yard/news:prod-1.0"
    assert detail["available"] is True
