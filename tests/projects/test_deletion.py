"""Projects are deleted with all that is in them, restored for a while, and deleted for good."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.access.errors import NotDeleted
from apps.access.models import AuditRecord, Membership, User
from apps.access.services import has_role, project_ids, projects_by_role
from apps.access.states import Role
from apps.configcenter.models import KindSerial
from apps.jobs.models import Job, Run
from apps.jobs.services import delete_job, purge_jobs
from apps.jobs.states import RunState
from apps.projects.engine.senders import IncomingDelivery
from apps.projects.errors import ProjectNameTaken
from apps.projects.models import Build, DeletedProject, Delivery, Project
from apps.projects.services import delete_project, purge_projects, receive_delivery, restore_project
from tests.access.factories import Api, enter, make_auditor, make_superuser, make_user, page
from tests.configcenter.factories import make_activation
from tests.confirmation import confirm
from tests.joblogs.factories import make_build
from tests.jobs.factories import NOW, make_job, make_project, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project(name="News", slug="news")


@pytest.fixture
def admin_of(project: Project) -> User:
    return make_user(roles={project: Role.ADMIN})


def test_all_that_is_in_it_is_hidden_and_comes_back(project: Project, admin_of: User) -> None:
    job = make_job(project=project)
    run = make_run(job=job, state=RunState.EXITED)
    root = make_superuser()
    people = (admin_of, root, make_auditor())
    delete_project(actor=root, project=project, now=NOW)
    for user in people:
        assert not Project.objects.visible_to(user).filter(pk=project.pk).exists()
        assert not Job.objects.visible_to(user).filter(pk=job.pk).exists()
        assert not Run.objects.visible_to(user).filter(pk=run.pk).exists()
        assert not Membership.objects.visible_to(user).filter(project=project).exists()
    assert project_ids(admin_of) == frozenset()
    assert not projects_by_role(admin_of)[Role.VIEWER]
    assert not has_role(admin_of, project.pk, Role.VIEWER)
    # What was done there stays on record, for those who see everything.
    trail = AuditRecord.objects.filter(action="projects.delete_project")
    assert [trail.visible_to(user).count() for user in people] == [0, 1, 1]
    restore_project(actor=root, project=project, now=NOW)
    for user in people:
        assert Run.objects.visible_to(user).filter(pk=run.pk).exists()
    assert has_role(admin_of, project.pk, Role.ADMIN)
    with pytest.raises(NotDeleted):
        restore_project(actor=root, project=project)


def test_who_follows_configurations_is_told(project: Project) -> None:
    kind = make_activation(project).configuration.kind
    serials = [KindSerial.objects.create(kind=kind, serial=1).serial]
    delete_project(actor=None, project=project)
    serials.append(KindSerial.objects.get(kind=kind).serial)
    restore_project(actor=None, project=project)
    serials.append(KindSerial.objects.get(kind=kind).serial)
    assert serials == sorted(set(serials))


def test_its_webhook_answers_as_one_that_never_was(project: Project) -> None:
    delete_project(actor=None, project=project)
    incoming = IncomingDelivery(headers={}, body=b"{}", token=str(project.webhook_secret))
    answer = receive_delivery(
        slug=project.slug, incoming=incoming, remote_address="", now=timezone.now()
    )
    assert answer is None
    assert not Delivery.objects.exists()


def test_its_names_are_free_until_it_wants_them_back(project: Project) -> None:
    delete_project(actor=None, project=project)
    api = Api(make_superuser())
    made = api.post("projects", {"name": "News", "slug": "news"})
    assert made.status_code == 201
    with pytest.raises(ProjectNameTaken):
        restore_project(actor=None, project=project)
    refused = api.post(f"projects/{project.pk}/restore")
    assert (refused.status_code, refused.json()["code"]) == (409, "project_name_taken")
    assert api.patch(f"projects/{made.json()['id']}", {"name": "A", "slug": "a"}).status_code == 200
    assert api.post(f"projects/{project.pk}/restore").json()["slug"] == "news"


def test_after_thirty_days_it_is_gone(project: Project) -> None:
    job = make_job(project=project)
    make_run(job=job, state=RunState.EXITED)
    build = make_build(project=project)
    Build.objects.filter(pk=build.pk).update(state="failed", ended_at=NOW)
    delete_job(job=make_job(project=project), actor=None, now=NOW)
    delete_project(actor=None, project=project, now=NOW)
    end = NOW + timedelta(days=30, seconds=1)
    assert purge_projects(now=NOW + timedelta(days=29)) == 0
    assert purge_jobs(now=end) == 2
    assert purge_projects(now=end) == 1
    assert not Project.all_objects.filter(pk=project.pk).exists()
    entry = AuditRecord.objects.get(action="projects.purge_project")
    assert (entry.project_id, entry.object_label) == (None, "News")


def test_what_was_collected_is_not_thrown_away(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    make_job(project=project)
    delete_project(actor=None, project=project, now=NOW)
    with caplog.at_level(logging.WARNING):
        assert purge_projects(now=NOW + timedelta(days=31)) == 0
    assert "news is kept: it still has 1 jobs.Job" in caplog.text
    restore_project(actor=None, project=project)
    assert Job.objects.filter(project=project).count() == 1


def test_over_rest_and_on_pages(project: Project, admin_of: User) -> None:
    root = make_superuser()
    api, member = Api(root), Api(admin_of)
    assert member.delete(f"projects/{project.pk}").status_code == 403
    assert member.post(f"projects/{project.pk}/restore").status_code == 403
    assert api.delete(f"projects/{project.pk}").status_code == 204
    assert member.get("projects/deleted").json()["results"] == []
    # They have no role anywhere by now.
    assert member.post(f"projects/{project.pk}/restore").status_code == 403
    rows = api.get("projects/deleted").json()["results"]
    assert [(each["slug"], each["deleted_by"]) for each in rows] == [("news", root.username)]
    assert api.post(f"projects/{project.pk}/restore").status_code == 200
    client = enter(root)
    assert client.post(page(Project, "delete", project.pk), {"post": "yes"}).status_code == 302
    assert "News" in client.get(page(DeletedProject, "changelist")).content.decode()
    address = page(DeletedProject, "change", project.pk).removesuffix("change/") + "restore/"
    assert enter(make_auditor()).post(address).status_code == 403
    assert confirm(client, address).status_code == 302
    assert Project.objects.filter(pk=project.pk).exists()
