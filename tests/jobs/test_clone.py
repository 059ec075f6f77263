"""Clones of jobs: like the original in everything, disabled, with a name of their own."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.jobs import services
from apps.jobs.errors import JobNameTaken
from apps.jobs.models import Job, JobLink, Schedule
from apps.jobs.services.jobs import free_name
from apps.projects.models import Project
from tests.access.factories import Api, make_user
from tests.jobs.factories import make_job, make_project, make_run
from tests.jobs.test_admin import LIST, member, said
from tests.jobs.test_execution_options import FULL, check_full, make_image

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


def full_job(project: Project) -> Job:
    return services.create_job(
        values={
            **FULL,
            "project": project,
            "name": "pages",
            "image": make_image(project),
            "cookies": '{"sid": "s3cret-cookie"}',
            "speed": 0.5,
            "policy": "chained",
        },
        actor=None,
    )


def test_everything_is_cloned_but_the_name_and_that_it_runs(project: Project) -> None:
    job = full_job(project)
    before = make_job(project=project)
    JobLink.objects.create(job=job, after=before, condition="failed")
    # Of a project where the person is no editor: nothing new may follow it.
    JobLink.objects.create(job=job, after=make_job())
    make_run(job=job)
    api = Api(make_user(roles={project: Role.EDITOR}))
    answer = api.post(f"jobs/{job.pk}/clone")
    assert answer.status_code == 201, answer.content
    clone = Job.objects.get(pk=answer.json()["id"])
    check_full(clone)
    own = {"id", "name", "enabled", "created_at", "updated_at", "secrets", "cookies"}
    for field in Job._meta.concrete_fields:
        if field.name not in own:
            assert getattr(clone, field.attname) == getattr(job, field.attname), field.name
    assert (clone.name, clone.enabled) == ("pages (copy)", False)
    assert clone.cookies == '{"sid": "s3cret-cookie"}'
    assert [(link.after, link.condition) for link in clone.links.all()] == [(before, "failed")]
    assert not clone.runs.exists()
    assert Schedule.objects.get(job=clone).next_at is None
    assert "s3cret" not in answer.content.decode()
    entry = AuditRecord.objects.get(action="jobs.clone_job")
    assert entry.object_id == str(clone.pk)
    assert "s3cret" not in str(entry.after)


def test_sealed_secrets_are_cloned_without_being_opened(project: Project, settings: Any) -> None:
    job = full_job(project)
    keys = settings.SECRETBOX_KEYS
    settings.SECRETBOX_KEYS = ["another-key-of-32-characters-or-so"]
    clone = services.clone_job(
        job=Job.objects.get(pk=job.pk), actor=None, now=timezone.now(), name="mine"
    )
    settings.SECRETBOX_KEYS = keys
    assert Job.objects.get(pk=clone.pk).secret_environment() == FULL["secrets"]


def test_names_of_clones() -> None:
    assert free_name("a", set()) == "a (copy)"
    assert free_name("a", {"a (copy)"}) == "a (copy 2)"
    assert free_name("a (copy)", {"a (copy)", "a"}) == "a (copy 2)"
    assert free_name("a (copy 2)", {"a (copy)", "a (copy 2)"}) == "a (copy 3)"
    long = free_name("x" * 100, {f"{'x' * 93} (copy)"})
    assert len(long) <= 100
    assert long.endswith("x (copy 2)")
    taken = {"a (copy)", *(f"a (copy {number})" for number in range(2, 1001))}
    with pytest.raises(JobNameTaken):
        free_name("a", taken)


def test_a_clone_may_be_named_but_not_as_another(project: Project) -> None:
    job = make_job(project=project, name="pages")
    api = Api(make_user(roles={project: Role.EDITOR}))
    assert api.post(f"jobs/{job.pk}/clone", {"name": "mine"}).json()["name"] == "mine"
    taken = api.post(f"jobs/{job.pk}/clone", {"name": "pages"})
    assert (taken.status_code, taken.json()["code"]) == (409, "job_name_taken")
    for bad in ("x" * 101, "", "a\nb", "a\x00", 5.5, [], {}):
        answer = api.post(f"jobs/{job.pk}/clone", {"name": bad})
        assert answer.status_code in ((201,) if bad == 5.5 else (400,)), (bad, answer.content)


def test_roles_decide(project: Project) -> None:
    job = make_job(project=project)
    assert (
        Api(make_user(roles={project: Role.OPERATOR})).post(f"jobs/{job.pk}/clone").status_code
        == 403
    )
    stranger = Api(make_user(roles={make_project(): Role.EDITOR}))
    assert stranger.post(f"jobs/{job.pk}/clone").status_code == 404
    address = reverse("admin:jobs_job_clone", args=[job.pk])
    assert member(project, Role.OPERATOR).post(address).status_code == 403
    assert member(make_project(), Role.EDITOR).post(address).status_code == 404
    assert member(project, Role.EDITOR).get(address).status_code == 405
    assert Job.objects.count() == 1


def test_a_repeated_call_with_the_same_key_clones_once(project: Project) -> None:
    job = make_job(project=project)
    api = Api(make_user(roles={project: Role.EDITOR}))
    first = api.post(f"jobs/{job.pk}/clone", Idempotency_Key="once")
    second = api.post(f"jobs/{job.pk}/clone", Idempotency_Key="once")
    assert first.json()["id"] == second.json()["id"]
    assert Job.objects.count() == 2


def test_the_button_leads_to_the_clone(project: Project) -> None:
    job = make_job(project=project, name="pages")
    client = member(project, Role.EDITOR)
    address = reverse("admin:jobs_job_clone", args=[job.pk])
    assert f'action="{address}"' in client.get(f"{LIST}{job.pk}/change/").content.decode()
    response = client.post(address)
    clone = Job.objects.get(name="pages (copy)")
    assert response.headers["Location"] == f"{LIST}{clone.pk}/change/"
    assert said(response) == ["This is the clone of pages. It is disabled until you enable it."]
