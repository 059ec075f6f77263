"""Kinds with a platform configuration, without a project."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse

from apps.access.models import User
from apps.access.states import Role
from apps.configcenter.errors import PlatformNotSupported
from apps.configcenter.models import Configuration, ConfigVersion
from apps.configcenter.queries import rollouts_of
from apps.configcenter.services import (
    PLATFORM,
    ActiveVersion,
    ConfigWatcher,
    activate,
    save_version,
)
from tests.access.factories import Api, make_project, make_user
from tests.configcenter.factories import KIND, NOW, SampleKind, make_process, save
from yardkit.clock import ManualClock

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def of_platform(sample_kind: SampleKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SampleKind, "platform", True)


def save_platform(limit: int) -> ConfigVersion:
    return save_version(
        kind=KIND, project_id=None, data={"limit": limit}, actor=None, now=NOW
    ).version


def boss() -> User:
    return make_user(username="boss", is_superuser=True, is_staff=True)


def test_there_is_one_of_the_platform_beside_those_of_projects() -> None:
    project = make_project()
    save(project, 1)
    first, second = save_platform(2), save_platform(3)
    assert (first.number, second.number) == (1, 2)
    assert first.configuration == second.configuration
    assert Configuration.objects.filter(kind=KIND).count() == 2
    with pytest.raises(IntegrityError), transaction.atomic():
        Configuration.objects.create(kind=KIND)


def test_other_kinds_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SampleKind, "platform", False)
    with pytest.raises(PlatformNotSupported):
        save_platform(1)
    assert not Configuration.objects.exists()
    answer = Api(boss()).post("config/versions", {"kind": KIND, "project": None, "data": {}})
    assert answer.status_code == 422
    assert answer.json()["code"] == "not_of_platform"


def test_a_daemon_is_given_it_like_any_other() -> None:
    project = make_project()
    activate(version=save(project, 1), actor=None, now=NOW)
    version = save_platform(5)
    activate(version=version, actor=None, now=NOW)
    seen: dict[int, Any] = {}

    def apply(project_id: int, active: ActiveVersion | None) -> None:
        seen[project_id] = active and active.data["limit"]

    identity, _daemon = make_process("one")
    follower = ConfigWatcher(kind=KIND, apply=apply, clock=ManualClock(NOW), identity=identity)
    follower.setup()
    assert seen == {PLATFORM: 5, project.pk: 1}
    row = Configuration.objects.select_related("active").get(project=None)
    assert rollouts_of([row])[row.pk].on == 1


def test_only_those_who_see_everything_read_and_write_it() -> None:
    project = make_project()
    api = Api(make_user(username="ada", roles={project: Role.ADMIN}))
    save_platform(1)
    body = {"kind": KIND, "project": None, "data": {"limit": 4}}
    assert api.post("config/versions", body).status_code == 403
    assert api.get("config").json()["results"] == []
    all_seeing = Api(boss())
    made = all_seeing.post("config/versions", body | {"activate": True})
    assert made.status_code == 201, made.content
    assert made.json()["version"]["project"] is None
    (row,) = all_seeing.get("config", platform="true").json()["results"]
    assert (row["project"], row["active"]) == (None, 2)


@pytest.mark.slow("2 s")
def test_the_pages_name_the_platform() -> None:
    version = save_platform(1)
    activate(version=version, actor=None, now=NOW)
    client = Client()
    client.force_login(boss())
    for name, pk in (
        ("configuration_changelist", None),
        ("configversion_changelist", None),
        ("configuration_change", version.configuration_id),
        ("configversion_change", version.pk),
    ):
        page = client.get(reverse(f"admin:configcenter_{name}", args=[pk] if pk else []))
        assert page.status_code == 200
        assert "Platform" in page.content.decode()
    only = reverse("admin:configcenter_configversion_changelist")
    only += f"?configuration__kind={KIND}&configuration__project__isnull=True"
    assert "v1" in client.get(only).content.decode()
    add = reverse("admin:configcenter_configuration_add") + f"?kind={KIND}&project="
    page = client.get(add)
    assert '"limit": 1' in page.content.decode().replace("&quot;", '"')
    form = {"text": '{"limit": 9}', "based_on": "1", "note": "", "activate": "on"}
    assert client.post(add, form).status_code == 302
    assert Configuration.objects.get(project=None).active.data == {"limit": 9}  # type: ignore[union-attr]


def test_editors_of_a_project_are_not_offered_it() -> None:
    project = make_project()
    client = Client()
    client.force_login(make_user(username="eve", roles={project: Role.EDITOR}, is_staff=True))
    page = client.get(reverse("admin:configcenter_configuration_add") + f"?kind={KIND}&project=")
    assert "Choose a project." in page.content.decode()


def test_the_command_takes_platform_in_place_of_a_project(tmp_path: Path) -> None:
    file = tmp_path / "limits.json"
    file.write_text(json.dumps({"limit": 3}))
    out = io.StringIO()

    def run(*arguments: str) -> str:
        out.truncate(0)
        out.seek(0)
        call_command("config", *arguments, stdout=out, stderr=out)
        return out.getvalue()

    said = run("apply", KIND, str(file), "--platform")
    assert "sample of the platform: v1 is active" in said
    assert json.loads(run("export", KIND, "--platform")) == {"limit": 3}
    assert "sample\tthe platform\tv1 active" in run("list")
    assert "* v1" in run("list", KIND, "--platform", "--versions")
    assert "no version is active" in run("deactivate", KIND, "--platform")
    with pytest.raises(CommandError):
        run("export", KIND, "--platform", "--project", "shop")
