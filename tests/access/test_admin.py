"""The admin: who enters, sees and changes what, and that it is recorded."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from apps.access.models import ApiToken, AuditRecord, Membership, User
from apps.access.services import record
from apps.access.states import Role
from apps.projects.models import Project
from tests.access.factories import (
    PASSWORD,
    enter,
    make_project,
    make_superuser,
    make_token,
    make_user,
    page,
)
from tests.confirmation import confirm
from tests.jobs.factories import make_job

pytestmark = pytest.mark.django_db

OURS = (User, Group, ApiToken, AuditRecord, Project)
# Of the whole platform: not for those who see some projects.
FOR_ALL_OR_NOBODY = {
    "access.User",
    "auth.Group",
    "axes.AccessAttempt",
    "django_celery_beat.PeriodicTask",
    "projects.DeletedProject",
    "runtime.Daemon",
    "runtime.DeadLetter",
    "runtime.OutboxMessage",
}
ALL_MODELS = sorted(admin.site._registry, key=lambda model: model._meta.label)


@pytest.fixture
def project() -> Project:
    return make_project(name="Mine")


@pytest.fixture
def root() -> User:
    return make_superuser()


# --- pages -----------------------------------------------------------------------------------


@pytest.mark.slow("25 s")
@pytest.mark.parametrize("model", ALL_MODELS, ids=lambda model: model._meta.label)
def test_lists_open_for_superusers_and_scoped_staff(
    model: Any, root: User, project: Project
) -> None:
    address = page(model, "changelist")
    # Some lists are pages of their own, to which the admin's address leads.
    assert enter(root).get(address, follow=True).status_code == 200
    assert enter(root).get(address, {"q": "text"}, follow=True).status_code == 200
    scoped = enter(make_user(roles={project: Role.ADMIN}))
    status = 403 if model._meta.label in FOR_ALL_OR_NOBODY else 200
    assert scoped.get(address, follow=True).status_code == status
    outsider = enter(make_user(is_staff=False, roles={project: Role.ADMIN}))
    assert outsider.get(page(model, "changelist")).status_code == 302


@pytest.mark.slow("3 s")
@pytest.mark.parametrize("model", OURS, ids=lambda model: model._meta.label)
def test_pages_of_one_object_open(model: Any, root: User, project: Project) -> None:
    make_token(root)
    Group.objects.create(name="Group")
    obj = model._default_manager.order_by("pk").first()
    client = enter(root)
    assert client.get(page(model, "change", obj.pk)).status_code == 200
    history = client.get(page(model, "history", obj.pk))
    if model is not Group:
        assert history.status_code == 302
        assert client.get(history["Location"]).status_code == 200
    if model is not AuditRecord:
        assert client.get(page(model, "add")).status_code == 200
        # A token is revoked instead, and stays in the trail.
        status = 403 if model is ApiToken else 200
        assert client.get(page(model, "delete", obj.pk)).status_code == status


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("model", OURS, ids=lambda model: model._meta.label)
def test_lists_cost_the_same_however_long(
    model: Any, root: User, project: Project, django_assert_max_num_queries: Any
) -> None:
    for index in range(15):
        user = make_user(roles={make_project(): Role.VIEWER})
        make_token(user, project=project)
        Group.objects.create(name=f"Group {index}")
    client = enter(root)
    with django_assert_max_num_queries(9):
        assert client.get(page(model, "changelist")).status_code == 200


def test_scoped_staff_find_their_way(project: Project) -> None:
    client = enter(make_user(roles={project: Role.VIEWER}))
    assert client.get(reverse("admin:index")).status_code == 200
    listed = client.get(page(Project, "changelist")).content.decode()
    assert "Mine" in listed
    assert "Default" not in listed
    for model in (User, Group):
        assert client.get(page(model, "changelist")).status_code == 403


def test_staff_without_a_role_sees_nothing(project: Project) -> None:
    client = enter(make_user())
    assert client.get(reverse("admin:index")).status_code == 200
    assert client.get(page(Project, "changelist")).status_code == 403
    assert client.get(page(Project, "change", project.pk)).status_code == 403


# --- projects and roles ----------------------------------------------------------------------


# As the form of a new project shows them.
PROJECT_DEFAULTS = {
    "default_branch": "main",
    "tag_template": "{release}/{name}/{version}",
    "builds_enabled": "on",
    "dockerfile": "Dockerfile",
    "build_timeout_seconds": "1800",
    "max_image_bytes": "4096",
}


def project_form(project: Project, **changed: Any) -> dict[str, Any]:
    members = list(project.memberships.order_by("pk"))
    form: dict[str, Any] = {
        "name": project.name,
        "slug": project.slug,
        "description": project.description,
        "allowed_networks": "\n".join(project.allowed_networks),
        **PROJECT_DEFAULTS,
        "memberships-TOTAL_FORMS": len(members),
        "memberships-INITIAL_FORMS": len(members),
    }
    for index, member in enumerate(members):
        form |= {
            f"memberships-{index}-id": member.pk,
            f"memberships-{index}-project": project.pk,
            f"memberships-{index}-user": member.user_id,
            f"memberships-{index}-role": member.role,
        }
    return form | changed


def test_a_change_is_recorded_with_before_and_after(root: User, project: Project) -> None:
    client = enter(root)
    form = project_form(project, description="new", allowed_networks="10.0.0.0/8\n\nfd00::/8\n")
    assert client.post(page(Project, "change", project.pk), form).status_code == 302
    project.refresh_from_db()
    assert project.allowed_networks == ["10.0.0.0/8", "fd00::/8"]
    entry = AuditRecord.objects.get(action="projects.change_project")
    assert entry.actor == root
    assert entry.project == project
    assert entry.before["description"] == ""
    assert entry.after["description"] == "new"
    assert entry.after["allowed_networks"] == ["10.0.0.0/8", "fd00::/8"]
    assert "name" not in entry.after
    assert entry.request_id
    # Saved again without a change: nothing to record.
    client.post(page(Project, "change", project.pk), project_form(project))
    assert AuditRecord.objects.filter(action="projects.change_project").count() == 1


def test_adding_and_deleting_is_recorded(root: User) -> None:
    client = enter(root)
    form = {
        "name": "New",
        "slug": "new",
        "allowed_networks": "",
        **PROJECT_DEFAULTS,
        "memberships-TOTAL_FORMS": 0,
        "memberships-INITIAL_FORMS": 0,
    }
    assert client.post(page(Project, "add"), form).status_code == 302
    new = Project.objects.get(slug="new")
    assert client.post(page(Project, "delete", new.pk), {"post": "yes"}).status_code == 302
    trail = AuditRecord.objects.filter(object_type="projects.project", object_id=str(new.pk))
    assert list(trail.order_by("id").values_list("action", flat=True)) == [
        "projects.add_project",
        "projects.delete_project",
    ]


def test_bad_networks_are_shown(root: User, project: Project) -> None:
    form = project_form(project, allowed_networks="10.20.0.5/16")
    response = enter(root).post(page(Project, "change", project.pk), form)
    assert response.status_code == 200
    assert "10.20.0.0/16" in response.content.decode()
    project.refresh_from_db()
    assert project.allowed_networks == []


def test_the_default_project_stays(root: User) -> None:
    default = Project.objects.get(slug="default")
    client = enter(root)
    response = client.post(page(Project, "delete", default.pk), {"post": "yes"}, follow=True)
    assert "cannot be deleted" in response.content.decode()
    bulk = {"action": "delete_selected", "_selected_action": [default.pk]}
    response = confirm(client, page(Project, "changelist"), bulk, follow=True)
    assert "cannot be deleted" in response.content.decode()
    assert Project.objects.filter(pk=default.pk).exists()


def test_project_admins_manage_members(project: Project) -> None:
    boss, friend = make_user(roles={project: Role.ADMIN}), make_user()
    client = enter(boss)
    form = project_form(project) | {
        "memberships-TOTAL_FORMS": 2,
        "memberships-1-project": project.pk,
        "memberships-1-user": friend.pk,
        "memberships-1-role": "editor",
    }
    assert client.post(page(Project, "change", project.pk), form).status_code == 302
    member = Membership.objects.get(user=friend)
    assert member.role == Role.EDITOR
    form = project_form(project) | {"memberships-1-role": "viewer"}
    client.post(page(Project, "change", project.pk), form)
    form = project_form(project) | {"memberships-1-DELETE": "on"}
    client.post(page(Project, "change", project.pk), form)
    assert not Membership.objects.filter(user=friend).exists()
    trail = AuditRecord.objects.filter(object_type="access.membership").order_by("id")
    assert [(each.action, each.project, each.actor) for each in trail] == [
        ("access.add_membership", project, boss),
        ("access.change_membership", project, boss),
        ("access.delete_membership", project, boss),
    ]
    assert (trail[1].before, trail[1].after) == ({"role": "editor"}, {"role": "viewer"})


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.EDITOR])
def test_others_cannot_change_a_project_or_its_members(project: Project, role: Role) -> None:
    client = enter(make_user(roles={project: role}))
    address = page(Project, "change", project.pk)
    assert client.get(address).status_code == 200
    assert client.post(address, project_form(project, name="Taken")).status_code == 403
    assert client.get(page(Project, "add")).status_code == 403
    assert client.post(page(Project, "delete", project.pk), {"post": "yes"}).status_code == 403
    project.refresh_from_db()
    assert project.name == "Mine"


def test_things_of_other_projects_cannot_be_opened(project: Project) -> None:
    other = make_project()
    client = enter(make_user(roles={project: Role.ADMIN}))
    job = make_job(project=other)
    for obj in (other, job):
        response = client.get(page(type(obj), "change", obj.pk))
        assert response.status_code == 302
        assert response["Location"] == reverse("admin:index")


# --- people ----------------------------------------------------------------------------------


def user_form(user: User, **changed: Any) -> dict[str, Any]:
    form = {
        "username": user.username,
        "is_active": "on",
        "is_staff": "on",
        "memberships-TOTAL_FORMS": 0,
        "memberships-INITIAL_FORMS": 0,
    }
    if user.is_superuser:
        form["is_superuser"] = "on"
    return {name: value for name, value in (form | changed).items() if value is not None}


def test_a_new_person_gets_a_one_time_password(root: User) -> None:
    form = {
        "username": "new",
        "usable_password": "true",
        "password1": PASSWORD,
        "password2": PASSWORD,
        "memberships-TOTAL_FORMS": 0,
        "memberships-INITIAL_FORMS": 0,
    }
    response = enter(root).post(page(User, "add"), form)
    assert response.status_code == 302, response.content.decode()[:2000]
    new = User.objects.get(username="new")
    assert new.must_change_password
    assert new.is_staff
    entry = AuditRecord.objects.get(action="access.add_user")
    assert entry.after["username"] == "new"
    assert new.password not in str(entry.after)


def test_a_password_set_by_others_is_a_one_time_password(root: User) -> None:
    user = make_user()
    address = reverse("admin:auth_user_password_change", args=[user.pk])
    form = {
        "usable_password": "true",
        "password1": "another long one",
        "password2": "another long one",
    }
    assert enter(root).post(address, form).status_code == 302
    user.refresh_from_db()
    assert user.check_password("another long one")
    assert user.must_change_password
    assert AuditRecord.objects.filter(action="access.set_password", actor=root).count() == 1


def test_the_last_superuser_stays(root: User) -> None:
    client = enter(root)
    form = user_form(root, is_superuser=None)
    response = client.post(page(User, "change", root.pk), form, follow=True)
    assert "last active superuser" in response.content.decode()
    response = client.post(page(User, "delete", root.pk), {"post": "yes"}, follow=True)
    assert "last active superuser" in response.content.decode()
    root.refresh_from_db()
    assert root.is_superuser
    assert not AuditRecord.objects.filter(action="access.change_user").exists()


def test_a_one_time_password_must_be_changed_first() -> None:
    password = "chosen by somebody else"
    make_superuser(username="admin", password=password, must_change_password=True)
    client = Client()
    login = {"username": "admin", "password": password, "next": "/admin/"}
    assert client.post(reverse("admin:login"), login).status_code == 302
    change = reverse("admin:password_change")
    for address in ("/admin/", page(Project, "changelist"), "/"):
        response = client.get(address)
        assert (response.status_code, response["Location"]) == (302, change)
    refused = client.get("/api/v1/me")
    assert (refused.status_code, refused.json()["code"]) == (403, "password_change_required")
    assert set(refused.json()) == {"code", "detail", "fields", "request_id"}
    assert client.get(change).status_code == 200
    assert client.get("/admin/jsi18n/").status_code == 200
    wrong = client.post(change, {"old_password": "x", "new_password1": "y", "new_password2": "y"})
    assert wrong.status_code == 200
    new = {"old_password": password, "new_password1": PASSWORD, "new_password2": PASSWORD}
    assert client.post(change, new)["Location"] == "/admin/"
    assert client.get("/admin/").status_code == 200
    assert client.get("/api/v1/me").status_code == 200
    actions = list(AuditRecord.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["access.log_in", "access.set_password"]


# --- the audit trail -------------------------------------------------------------------------


def test_the_trail_is_read_only_and_scoped(root: User, project: Project) -> None:
    mine = record(actor=root, action="test.mine", obj=project, before={"<b>": 1}, note="n")
    record(actor=root, action="test.other", obj=make_project())
    client = enter(make_user(roles={project: Role.ADMIN}))
    text = client.get(page(AuditRecord, "changelist")).content.decode()
    assert "test.mine" in text
    assert "test.other" not in text
    one = client.get(page(AuditRecord, "change", mine.pk))
    assert one.status_code == 200
    assert "&lt;b&gt;" in one.content.decode()
    assert enter(root).post(page(AuditRecord, "change", mine.pk), {}).status_code == 403
    assert enter(root).post(page(AuditRecord, "delete", mine.pk), {}).status_code == 403
    editor = enter(make_user(roles={project: Role.EDITOR}))
    assert editor.get(page(AuditRecord, "changelist")).status_code == 403


@pytest.mark.slow("1 s")
def test_the_trail_is_filtered_by_object_and_person(root: User, project: Project) -> None:
    record(actor=root, action="test.mine", obj=project)
    record(actor=None, action="test.system", obj=project)
    client = enter(root)

    def listed(**query: Any) -> str:
        response = client.get(page(AuditRecord, "changelist"), query)
        assert response.status_code == 200
        return str(response.content.decode())

    about = {"object_type": "projects.project", "object_id": str(project.pk)}
    assert "test.mine" in listed(**about)
    assert "test.system" in listed(**about)
    assert "test.system" not in listed(**about, actor_label=root.username)
    assert "test.mine" not in listed(object_id="0")


def test_foreign_keys_offer_only_what_may_be_chosen(project: Project) -> None:
    make_project(name="Not mine")
    client = enter(make_user(roles={project: Role.EDITOR}))
    from apps.jobs.models import Job

    text = client.get(page(Job, "add")).content.decode()
    assert "Mine" in text
    assert "Not mine" not in text
