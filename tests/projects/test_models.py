"""What a project accepts."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from apps.access.models import AuditRecord
from apps.projects.errors import DefaultProjectStays, ProjectInUse
from apps.projects.models import Project, validate_networks
from apps.projects.services import change_project, create_project, default_project, delete_project
from tests.access.factories import make_project, make_superuser, make_user
from tests.jobs.factories import make_run

pytestmark = pytest.mark.django_db


def test_there_is_a_default_project() -> None:
    project = default_project()
    assert (project.slug, project.name) == ("default", "Default")
    assert Project.objects.count() == 1
    Project.objects.all().delete()
    assert default_project().slug == "default"


@pytest.mark.parametrize(
    "networks",
    [
        [],
        ["10.20.0.0/16"],
        ["fd00::/8", "192.168.1.7/32", "127.0.0.0/8", "::1/128"],
        ["10.0.0.1"],
        ["0.0.0.0/0"],
    ],
)
def test_good_networks(networks: list[str]) -> None:
    validate_networks(networks)
    assert Project(allowed_networks=networks).networks == [ip_network(each) for each in networks]


@pytest.mark.parametrize(
    ("networks", "said"),
    [
        ("10.0.0.0/8", "list"),
        ({}, "list"),
        (None, "list"),
        (["example.com"], "Entry 1"),
        (["10.0.0.0/8", "10.0.0.0/33"], "Entry 2"),
        (["10.20.0.5/16"], "did you mean 10.20.0.0/16?"),
        (["fe80::1/64"], "did you mean fe80::/64?"),
        (["fe80::%eth0/64"], "Entry 1"),
        ([" 10.0.0.0/8"], "Entry 1"),
        ([167772160], "Entry 1"),
        ([None], "Entry 1"),
        (["010.0.0.0/8"], "Entry 1"),
        (["x" * 1000], "Entry 1"),
        (["10.0.0.0/8"] * 257, "at most 256"),
    ],
)
def test_bad_networks(networks: Any, said: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        validate_networks(networks)
    assert said in " ".join(refusal.value.messages)
    assert len(" ".join(refusal.value.messages)) < 500


@pytest.mark.parametrize("slug", ["", "with space", "a/b", "ä", "x" * 51, "a.b"])
def test_bad_slugs(slug: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        Project(name="Name", slug=slug).full_clean()
    assert "slug" in refusal.value.message_dict


def test_names_and_slugs_are_unique() -> None:
    make_project(name="Name", slug="slug")
    with pytest.raises(ValidationError) as refusal:
        Project(name="Name", slug="slug").full_clean()
    assert set(refusal.value.message_dict) == {"name", "slug"}


def test_every_change_is_recorded() -> None:
    actor = make_user()
    project = create_project(actor=actor, values={"name": "New", "slug": "new"})
    created = project.updated_at
    change_project(actor=actor, project=project, values={"description": "text"})
    assert project.updated_at > created
    change_project(actor=actor, project=project, values={"description": "text"})
    pk = project.pk
    delete_project(actor=actor, project=project)
    trail = AuditRecord.objects.filter(object_type="projects.project", object_id=str(pk))
    assert list(trail.order_by("id").values_list("action", flat=True)) == [
        "projects.add_project",
        "projects.change_project",
        "projects.delete_project",
    ]


def test_what_cannot_be_deleted() -> None:
    actor = make_superuser()
    with pytest.raises(DefaultProjectStays):
        delete_project(actor=actor, project=default_project())
    used = make_run().job.project
    with pytest.raises(ProjectInUse):
        delete_project(actor=actor, project=used)
    assert Project.objects.filter(pk=used.pk).exists()
    assert not AuditRecord.objects.filter(action="projects.delete_project").exists()
