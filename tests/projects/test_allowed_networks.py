"""Behind the address guard stand the installation's own stores: its superusers open networks."""

from __future__ import annotations

import pytest

from apps.access.states import Role
from apps.projects.models import Project
from tests.access.factories import Api, enter, make_project, make_superuser, make_user, page

pytestmark = pytest.mark.django_db
LOOPBACK = ["127.0.0.0/8", "169.254.169.254/32"]


def test_an_admin_of_a_project_opens_none_over_rest() -> None:
    project = make_project(allowed_networks=["10.20.0.0/16"])
    api = Api(make_user(roles={project: Role.ADMIN}))
    path = f"projects/{project.pk}"
    refused = api.patch(path, {"allowed_networks": LOOPBACK, "description": "x"})
    assert (refused.status_code, refused.json()["code"]) == (403, "role_required")
    assert set(refused.json()["fields"]) == {"allowed_networks"}
    project.refresh_from_db()
    assert (project.allowed_networks, project.description) == (["10.20.0.0/16"], "")
    # What stays as it is may be sent along.
    same = {"allowed_networks": ["10.20.0.0/16"], "description": "x"}
    assert api.patch(path, same).json()["description"] == "x"
    root = make_superuser()
    assert Api(root).patch(path, {"allowed_networks": LOOPBACK}).status_code == 200
    # By a token of one project a superuser is an admin of that project.
    narrow = Api(root, project=project)
    assert narrow.patch(path, {"allowed_networks": []}).status_code == 403


def test_nor_on_the_page() -> None:
    project = make_project()
    form = {
        "name": project.name,
        "slug": project.slug,
        "allowed_networks": "\n".join(LOOPBACK),
        "default_branch": "main",
        "tag_template": project.tag_template,
        "dockerfile": "Dockerfile",
        "build_timeout_seconds": "1800",
        "max_image_bytes": "100",
        "memberships-TOTAL_FORMS": 0,
        "memberships-INITIAL_FORMS": 0,
    }
    address = page(Project, "change", project.pk)
    shown = enter(make_user(roles={project: Role.ADMIN}))
    assert 'name="allowed_networks"' not in shown.get(address).content.decode()
    assert shown.post(address, form).status_code == 302
    project.refresh_from_db()
    assert project.allowed_networks == []
    root = enter(make_superuser())
    assert root.post(address, form).status_code == 302
    project.refresh_from_db()
    assert project.allowed_networks == LOOPBACK
