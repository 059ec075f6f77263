"""Projects over REST."""

from __future__ import annotations

from typing import Any

import pytest

from apps.access.states import Role
from apps.projects.models import Project
from apps.projects.services import default_project
from tests.access.factories import Api, make_project, make_superuser, make_user
from tests.jobs.factories import make_run

pytestmark = pytest.mark.django_db


def test_a_project_from_birth_to_death() -> None:
    api = Api(make_superuser())
    body = {
        "name": "新闻",
        "slug": "news",
        "description": "text",
        "allowed_networks": ["10.20.0.0/16"],
    }
    made = api.post("projects", body)
    assert made.status_code == 201, made.content
    path = f"projects/{made.json()['id']}"
    assert made["ETag"] == api.get(path)["ETag"]
    assert {name: made.json()[name] for name in body} == body
    assert api.patch(path, {"name": "News"}).json()["name"] == "News"
    put = api.call("put", path, {"name": "Again", "slug": "news"})
    assert put.json()["name"] == "Again"
    assert [each["slug"] for each in api.get("projects?slug=news").json()["results"]] == ["news"]
    assert api.delete(path).status_code == 204
    assert api.get(path).status_code == 404


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        ({"name": ""}, {"name"}),
        ({"name": "x" * 101}, {"name"}),
        ({"slug": "a b"}, {"slug"}),
        ({"slug": "default"}, {"slug"}),
        ({"name": "Default"}, {"name"}),
        ({"allowed_networks": ["10.20.0.5/16", "x"]}, {"allowed_networks"}),
        ({"allowed_networks": "10.0.0.0/8"}, {"allowed_networks"}),
        ({"allowed_networks": [["10.0.0.0/8"]]}, {"allowed_networks.0"}),
        ({"description": "x" * 10_001}, {"description"}),
        ({"description": None}, {"description"}),
    ],
)
def test_bad_input(changed: dict[str, Any], fields: set[str]) -> None:
    response = Api(make_superuser()).post("projects", {"name": "New", "slug": "new"} | changed)
    assert response.status_code == 400
    assert set(response.json()["fields"]) == fields
    assert not Project.objects.filter(slug="new").exists()


def test_a_project_in_use_stays() -> None:
    api = Api(make_superuser())
    used = api.delete(f"projects/{make_run().job.project.pk}")
    assert (used.status_code, used.json()["code"]) == (409, "project_in_use")
    default = api.delete(f"projects/{default_project().pk}")
    assert (default.status_code, default.json()["code"]) == (409, "default_project_stays")


def test_admins_of_a_project_keep_it_and_make_no_others() -> None:
    project = make_project()
    api = Api(make_user(roles={project: Role.ADMIN}))
    assert api.patch(f"projects/{project.pk}", {"description": "x"}).status_code == 200
    for refused in (
        api.post("projects", {"name": "New", "slug": "new"}),
        api.delete(f"projects/{project.pk}"),
    ):
        assert (refused.status_code, refused.json()["code"]) == (403, "role_required")
