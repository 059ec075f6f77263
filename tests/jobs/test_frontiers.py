"""The frontier of a job: of its own project everywhere it can be said, and told to its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import ProtectedError

from apps.access.states import Role
from apps.jobs.admin.forms import JobForm
from apps.jobs.daemon.specs import spec_of
from apps.jobs.engine.portable import JobFileFormat
from apps.jobs.errors import ImportRefused
from apps.jobs.models import Job
from apps.jobs.services import clone_job
from apps.jobs.services.portable import export_jobs, import_jobs
from apps.projects.models import Project
from apps.seeds.models import Frontier
from tests.access.factories import make_superuser, make_user
from tests.jobs.factories import NOW, make_job, make_project, make_run
from tests.jobs.test_api import Api, member
from yardkit.tokens import frontier_scope, pools_scope, verify_scope
from yardspider.environment import read_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


def make_frontier(project: Project, name: str = "news") -> Frontier:
    return Frontier.objects.create(project=project, name=name)


def test_a_job_takes_only_a_frontier_of_its_own_project(project: Project) -> None:
    job = make_job(project=project)
    job.frontier = make_frontier(project)
    job.clean()
    job.frontier = make_frontier(make_project())
    with pytest.raises(ValidationError) as refused:
        job.clean()
    assert list(refused.value.message_dict) == ["frontier"]


def test_the_frontier_of_a_job_cannot_be_deleted(project: Project) -> None:
    frontier = make_frontier(project)
    make_job(project=project, frontier=frontier)
    with pytest.raises(ProtectedError):
        frontier.delete()


def test_the_form_offers_those_of_its_project(project: Project) -> None:
    frontier, other = make_frontier(project), make_frontier(make_project())
    form = JobForm(instance=make_job(project=project))
    assert list(form.fields["frontier"].queryset) == [frontier]  # type: ignore[attr-defined]
    JobForm.projects = Project.objects.all()
    try:
        data = {"project": project.pk, "name": "x", "spider": "a:B", "frontier": other.pk}
        assert "frontier" in JobForm(data).errors
        assert "frontier" not in JobForm(data | {"frontier": frontier.pk}).errors
    finally:
        JobForm.projects = Project.objects.none()


def test_over_rest_another_projects_frontier_does_not_exist(project: Project) -> None:
    frontier, other = make_frontier(project), make_frontier(make_project())
    job = make_job(project=project)
    editor = member(project, Role.EDITOR)
    done = editor.patch(f"jobs/{job.pk}", {"frontier": frontier.pk})
    assert (done.status_code, done.json()["frontier"]) == (200, frontier.pk)
    refused = editor.patch(f"jobs/{job.pk}", {"frontier": other.pk})
    assert refused.status_code == 400
    assert "frontier" in str(refused.json())
    # Somebody who sees both projects learns no more.
    both = Api(make_user(roles={project: Role.EDITOR, other.project: Role.EDITOR}))
    assert both.patch(f"jobs/{job.pk}", {"frontier": other.pk}).status_code == 400
    assert editor.patch(f"jobs/{job.pk}", {"frontier": None}).json()["frontier"] is None


def test_it_travels_in_files_by_its_name(project: Project) -> None:
    job = make_job(project=project, frontier=make_frontier(project))
    admin = make_superuser()
    for kind in JobFileFormat:
        text = export_jobs([job], kind)
        Job.objects.filter(pk=job.pk).update(frontier=None)
        plan = import_jobs(raw=text, kind=kind, actor=admin, now=NOW)
        assert plan.jobs[0].changes == {"frontier": (None, "news")}
        job.refresh_from_db()
        assert job.frontier is not None
        elsewhere = make_project()
        with pytest.raises(ImportRefused) as refused:
            import_jobs(raw=text, kind=kind, actor=admin, now=NOW, project=elsewhere)
        assert "has no URL queue “news”" in str(refused.value.fields)
        theirs = make_frontier(elsewhere)
        import_jobs(raw=text, kind=kind, actor=admin, now=NOW, project=elsewhere)
        assert Job.objects.get(project=elsewhere).frontier == theirs


def test_a_clone_has_the_same(project: Project) -> None:
    job = make_job(project=project, frontier=make_frontier(project))
    assert clone_job(job=job, actor=None, now=NOW).frontier == job.frontier


def test_a_run_is_told_of_it_with_a_token_for_it_alone(project: Project, tmp_path: Path) -> None:
    frontier = make_frontier(project)
    run = make_run(job=make_job(project=project, frontier=frontier), boot="b1")
    told: Any = spec_of(run, tmp_path).environment | {"CRAWLYARD_RUN": str(run.pk)}
    read = read_run(told)
    assert (read.frontier, read.pools) == (frontier.pk, project.pk)
    key = settings.SECRET_KEY
    assert verify_scope(key, frontier_scope(frontier.pk), read.frontier_token)
    assert not verify_scope(key, frontier_scope(frontier.pk + 1), read.frontier_token)
    assert verify_scope(key, pools_scope(project.pk), read.pools_token)
    other = spec_of(make_run(job=make_job(project=project)), tmp_path).environment
    assert not [name for name in other if name.startswith("CRAWLYARD_FRONTIER")]
