"""Jobs are deleted, restored for a while, and deleted for good with their runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.access.errors import NotDeleted
from apps.access.models import AuditRecord, User
from apps.access.states import Role
from apps.jobs.errors import JobDeleted, JobHasRuns, JobNameTaken
from apps.jobs.models import DeletedJob, Job, PlannedRun, Run, Schedule
from apps.jobs.services import (
    add_link,
    create_job,
    delete_job,
    plan_due,
    purge_jobs,
    queue_run,
    restore_job,
    start_run,
)
from apps.jobs.services.followers import queue_followers
from apps.jobs.services.retries import retry_if_wanted
from apps.jobs.states import LinkCondition, RunState, Trigger
from apps.projects.errors import ProjectInUse
from apps.projects.models import Project
from apps.projects.services import delete_project, restore_project
from tests.access.factories import Api, enter, make_auditor, make_superuser, make_user, page
from tests.confirmation import confirm
from tests.jobs.factories import NOW, make_job, make_project, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def editor(project: Project) -> User:
    return make_user(roles={project: Role.EDITOR})


def scheduled(project: Project, **fields: Any) -> Job:
    values = {"project": project, "name": "hourly", "spider": "yardspider.spiders:SiteSpider"}
    return create_job(values=values | {"cron": "0 * * * *"} | fields, actor=None, now=NOW)


def test_it_is_hidden_with_its_runs_and_comes_back(project: Project, editor: User) -> None:
    job = make_job(project=project)
    run = make_run(job=job, state=RunState.EXITED)
    delete_job(job=job, actor=editor, now=NOW)
    for user in (editor, make_superuser(), make_auditor()):
        assert not Job.objects.visible_to(user).filter(pk=job.pk).exists()
        assert not Run.objects.visible_to(user).filter(pk=run.pk).exists()
    hidden = DeletedJob.objects.visible_to(editor).get()
    assert (hidden.deleted_at, hidden.deleted_by) == (NOW, editor.username)
    assert hidden.ends_at == NOW + timedelta(days=30)
    assert Run.objects.get(pk=run.pk).job.name == job.name
    restore_job(job=job, actor=editor, now=NOW)
    assert Run.objects.visible_to(editor).filter(pk=run.pk).exists()
    with pytest.raises(NotDeleted):
        restore_job(job=job, actor=editor)
    trail = AuditRecord.objects.filter(object_type="jobs.job", object_id=str(job.pk))
    assert list(trail.order_by("id").values_list("action", flat=True)) == [
        "jobs.delete_job",
        "jobs.restore_job",
    ]


def test_a_job_that_runs_stays() -> None:
    run = make_run(state=RunState.RUNNING)
    with pytest.raises(JobHasRuns):
        delete_job(job=run.job, actor=None)
    assert Job.objects.filter(pk=run.job_id).exists()
    with pytest.raises(ProjectInUse):
        delete_project(actor=None, project=run.job.project)
    assert Project.objects.filter(pk=run.job.project_id).exists()


@pytest.mark.covers("S1.56")
@pytest.mark.parametrize("whole_project", [False, True])
def test_nothing_starts_of_what_is_deleted(project: Project, whole_project: bool) -> None:
    job = scheduled(project, retry_rules=[{"on": "failed", "retries": 3}])
    before = make_job(project=make_project() if whole_project else project)
    add_link(job=job, after=before, condition=LinkCondition.ALWAYS, actor=None)
    ended = make_run(job=before, state=RunState.EXITED)
    failed = make_run(job=job, state=RunState.FAILED, host="host-1", exit_code=1)
    if whole_project:
        delete_project(actor=None, project=project, now=NOW)
    else:
        delete_job(job=job, actor=None, now=NOW)
    assert Schedule.objects.get(job_id=job.pk).next_at is None
    # Also for a schedule that was read as due just before.
    Schedule.objects.filter(job_id=job.pk).update(next_at=NOW)
    assert plan_due(now=NOW + timedelta(hours=2)) == 0
    assert not PlannedRun.objects.exists()
    assert queue_followers(ended, now=NOW) == []
    assert retry_if_wanted(Run.objects.get(pk=failed.pk), now=NOW) is None
    with pytest.raises(JobDeleted):
        start_run(job=Job.all_objects.get(pk=job.pk), now=NOW, actor=None)
    assert Run.objects.filter(job_id=job.pk).count() == 1
    Schedule.objects.filter(job_id=job.pk).update(next_at=None)
    # Nothing of the time between is caught up.
    later = NOW + timedelta(days=2)
    if whole_project:
        restore_project(actor=None, project=project, now=later)
    else:
        restore_job(job=job, actor=None, now=later)
    schedule = Schedule.objects.get(job_id=job.pk)
    assert schedule.next_at is not None
    assert later < schedule.next_at <= later + timedelta(hours=1)


def test_its_name_is_free_until_it_wants_it_back(project: Project) -> None:
    old = make_job(project=project, name="news")
    delete_job(job=old, actor=None, now=NOW)
    new = make_job(project=project, name="news")
    with pytest.raises(JobNameTaken):
        restore_job(job=old, actor=None)
    Job.objects.filter(pk=new.pk).update(name="news 2")
    restore_job(job=old, actor=None)
    assert Job.objects.filter(project=project).count() == 2


def test_after_thirty_days_it_is_gone_with_its_runs(project: Project) -> None:
    job, kept = make_job(project=project), make_job(project=project)
    run = make_run(job=job, state=RunState.EXITED)
    make_run(job=kept, state=RunState.EXITED)
    delete_job(job=job, actor=None, now=NOW)
    assert purge_jobs(now=NOW + timedelta(days=30)) == 0
    assert purge_jobs(now=NOW + timedelta(days=30, seconds=1)) == 1
    assert not Job.all_objects.filter(pk=job.pk).exists()
    assert not Run.objects.filter(pk=run.pk).exists()
    assert Run.objects.filter(job=kept).exists()
    entry = AuditRecord.objects.get(action="jobs.purge_job")
    assert (entry.object_label, entry.object_id) == (job.name, str(job.pk))


def test_over_rest(project: Project, editor: User) -> None:
    job = make_job(project=project)
    api, viewer = Api(editor), Api(make_user(roles={project: Role.VIEWER}))
    assert api.post(f"jobs/{job.pk}/restore").json()["code"] == "not_deleted"
    assert api.delete(f"jobs/{job.pk}").status_code == 204
    assert api.get(f"jobs/{job.pk}").status_code == 404
    assert api.post(f"jobs/{job.pk}/start").status_code == 404
    rows = viewer.get("jobs/deleted").json()["results"]
    assert [(each["id"], each["deleted_by"]) for each in rows] == [(job.pk, editor.username)]
    assert (
        Api(make_user(roles={make_project(): Role.ADMIN})).get("jobs/deleted").json()["results"]
        == []
    )
    assert viewer.post(f"jobs/{job.pk}/restore").status_code == 403
    assert api.post(f"jobs/{job.pk}/restore").json()["id"] == job.pk
    assert api.get(f"jobs/{job.pk}").status_code == 200


@pytest.mark.slow("2 s")
def test_on_pages(project: Project, editor: User) -> None:
    job = make_job(project=project)
    make_run(job=job, state=RunState.EXITED)
    client = enter(editor)
    question = client.get(page(Job, "delete", job.pk))
    assert question.status_code == 200
    assert "protected" not in question.content.decode()
    assert client.post(page(Job, "delete", job.pk), {"post": "yes"}).status_code == 302
    assert not Job.objects.filter(pk=job.pk).exists()
    assert job.name in client.get(page(DeletedJob, "changelist")).content.decode()
    address = page(DeletedJob, "change", job.pk).removesuffix("change/") + "restore/"
    viewer = enter(make_user(roles={project: Role.VIEWER}))
    assert viewer.post(address).status_code == 403
    assert client.get(address).status_code == 200
    assert not Job.objects.filter(pk=job.pk).exists()
    assert confirm(client, address).status_code == 302
    assert Job.objects.filter(pk=job.pk).exists()
    chosen = {"action": "delete_selected", "_selected_action": [job.pk]}
    confirm(client, page(Job, "changelist"), chosen)
    assert not Job.objects.filter(pk=job.pk).exists()
    chosen = {"action": "restore_selected", "_selected_action": [job.pk]}
    viewer.post(page(DeletedJob, "changelist"), chosen)
    assert not Job.objects.filter(pk=job.pk).exists()
    client.post(page(DeletedJob, "changelist"), chosen)
    assert Job.objects.filter(pk=job.pk).exists()


def test_queueing_knows_the_trigger_still() -> None:
    """The one way a run comes into being works for a restored job as before."""
    job = make_job()
    delete_job(job=job, actor=None)
    restored = restore_job(job=job, actor=None)
    assert queue_run(job=restored, now=NOW, trigger=Trigger.PERSON).pk
