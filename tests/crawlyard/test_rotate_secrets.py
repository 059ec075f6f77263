"""The newest key seals every secret; nothing is lost, whenever it is cut short."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from apps.projects.models import Project
from apps.runtime.fields import SealedText
from crawlyard import rotation
from yardkit.secretbox import SecretBox, SecretError, generate_key

pytestmark = pytest.mark.django_db

OLD, NEW = generate_key(), generate_key()


@pytest.fixture
def projects(settings: Any) -> list[Project]:
    settings.SECRETBOX_KEYS = [OLD]
    made = []
    for number in range(5):
        project = Project(name=f"P{number}", slug=f"p{number}")
        project.git_password = f"canary-{number}"
        project.save()
        made.append(project)
    settings.SECRETBOX_KEYS = [NEW, OLD]
    return made


def rotated(*arguments: str) -> str:
    out = io.StringIO()
    call_command("rotate_secrets", *arguments, stdout=out)
    assert "canary" not in out.getvalue()
    return out.getvalue()


def stored() -> list[str]:
    found = Project._base_manager.order_by("pk")
    return [one.__dict__["git_password"].sealed for one in found if one.git_password]


def opened(key: str) -> list[str]:
    return [SecretBox([key]).open(one) for one in stored()]


def test_every_secret_is_there_under_the_new_key_alone(projects: list[Project]) -> None:
    said = rotated()
    assert "projects.Project.git_password: 5 sealed anew, 0 have the newest key" in said
    assert opened(NEW) == [f"canary-{number}" for number in range(5)]


def test_a_dry_run_counts_and_changes_nothing(projects: list[Project]) -> None:
    before = stored()
    assert "git_password: 5 to seal anew" in rotated("--dry-run")
    assert stored() == before


def test_cut_short_it_goes_on_where_it_was(
    projects: list[Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "BATCH", 2)
    resealed, calls = rotation._resealed, []

    def dies(sealed: str, box: SecretBox, newest: SecretBox) -> str | None:
        calls.append(sealed)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return resealed(sealed, box, newest)

    with monkeypatch.context() as patch:
        patch.setattr(rotation, "_resealed", dies)
        with pytest.raises(KeyboardInterrupt):
            rotated()
    begun = 0
    for sealed in stored():
        with contextlib.suppress(SecretError):
            begun += bool(SecretBox([NEW]).open(sealed))
    assert 2 <= begun <= 3
    assert f"git_password: {5 - begun} sealed anew, {begun} have the newest key" in rotated()
    assert opened(NEW) == [f"canary-{number}" for number in range(5)]
    assert "git_password: 0 sealed anew, 5 have the newest key" in rotated()


def test_one_that_no_key_opens_is_named_and_left(projects: list[Project], settings: Any) -> None:
    foreign = SealedText(SecretBox([generate_key()]).seal("canary-x"))
    Project._base_manager.filter(pk=projects[2].pk).update(git_password=foreign)
    with pytest.raises(CommandError) as told:
        rotated()
    assert told.value.returncode == 1
    assert str(told.value).endswith(f"opens: projects.Project.git_password {projects[2].pk}")
    left = Project._base_manager.get(pk=projects[2].pk).__dict__["git_password"]
    assert left == foreign


def test_a_bad_key_is_said(settings: Any) -> None:
    settings.SECRETBOX_KEYS = ["short"]
    with pytest.raises(CommandError) as told:
        rotated()
    assert told.value.returncode == 2
