"""A person who reads everything and changes nothing, on pages and in questions of roles."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.db import IntegrityError, transaction
from django.urls import reverse
from django.utils import timezone

from apps.access.models import ApiToken, AuditRecord, User
from apps.access.services import ALL, has_role, has_role_somewhere, project_ids, record
from apps.access.states import Role
from apps.projects.models import Project
from apps.runtime.models import DeadLetter
from tests.access.factories import (
    enter,
    make_auditor,
    make_project,
    make_superuser,
    make_token,
    make_user,
    page,
)
from tests.jobs.factories import make_job

pytestmark = pytest.mark.django_db
# Of one's own, so that an auditor adds some too.
OWN = {ApiToken}
ALL_MODELS = sorted(admin.site._registry, key=lambda model: model._meta.label)


@pytest.fixture
def project() -> Project:
    return make_project(name="Mine")


@pytest.fixture
def auditor(project: Project) -> User:
    return make_auditor(roles={project: Role.ADMIN})


@pytest.mark.slow("25 s")
@pytest.mark.parametrize("model", ALL_MODELS, ids=lambda model: model._meta.label)
def test_every_list_opens_and_nothing_can_be_added(model: Any, auditor: User) -> None:
    client = enter(auditor)
    assert client.get(page(model, "changelist"), follow=True).status_code == 200
    if model not in OWN:
        own = admin.site._registry[model]
        request = client.get(page(model, "changelist"), follow=True).wsgi_request
        assert not own.has_add_permission(request)
        assert not own.has_change_permission(request)
        assert not own.has_delete_permission(request)


def test_the_whole_trail_is_theirs(auditor: User, project: Project) -> None:
    other = make_project(name="Other")
    root = make_superuser()
    entries = [record(actor=root, action="test.x", obj=obj) for obj in (project, other, root)]
    assert set(AuditRecord.objects.filter(action="test.x").visible_to(auditor)) == set(entries)
    text = enter(auditor).get(page(AuditRecord, "changelist"), {"q": "Other"}).content.decode()
    assert "test.x" in text


@pytest.mark.slow("2 s")
def test_forms_are_shown_and_not_saved(auditor: User, project: Project) -> None:
    job = make_job(project=project)
    client = enter(auditor)
    for obj in (job, project, auditor):
        address = page(type(obj), "change", obj.pk)
        assert client.get(address).status_code == 200
        assert client.post(address, {"name": "changed"}).status_code == 403
        assert client.post(page(type(obj), "delete", obj.pk), {"post": "yes"}).status_code == 403


def test_what_died_is_read_and_not_sent_again(auditor: User) -> None:
    letter = DeadLetter.objects.create(
        queue="tasks", reason="refused", body=b"x", body_size=1, died_at=timezone.now()
    )
    client = enter(auditor)
    text = client.get(page(DeadLetter, "change", letter.pk)).content.decode()
    address = reverse("admin:runtime_deadletter_drop", args=[letter.pk])
    assert address not in text
    assert client.post(address).status_code == 404
    letter.refresh_from_db()
    assert letter.state == "held"
    assert (
        address
        in enter(make_superuser()).get(page(DeadLetter, "change", letter.pk)).content.decode()
    )


def test_roles_above_viewer_have_no_effect(auditor: User, project: Project) -> None:
    assert project_ids(auditor) is ALL
    assert has_role(auditor, None, Role.VIEWER)
    for role in Role.at_least(Role.OPERATOR):
        assert not has_role(auditor, project.pk, role)
        assert not has_role_somewhere(auditor, role)
        assert project_ids(auditor, at_least=role) == frozenset()
        assert not Project.objects.visible_to(auditor, role).exists()


def test_a_token_of_one_project_narrows_an_auditor(auditor: User, project: Project) -> None:
    make_project(name="Other")
    auditor.acting_token = make_token(auditor, project=project).token
    assert project_ids(auditor) == {project.pk}
    assert list(Project.objects.visible_to(auditor)) == [project]
    assert not auditor.sees_everything


def test_nobody_is_both() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        make_user(is_auditor=True, is_superuser=True)


def test_others_tokens_are_seen_and_not_ended(auditor: User) -> None:
    token = make_token(make_user()).token
    client = enter(auditor)
    assert token.prefix in client.get(page(ApiToken, "changelist")).content.decode()
    chosen = {"action": "revoke_selected", "_selected_action": [token.pk]}
    client.post(page(ApiToken, "changelist"), chosen)
    token.refresh_from_db()
    assert token.revoked_at is None
