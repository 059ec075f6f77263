"""Jobs in the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from apps.access.models import AuditRecord, User
from apps.access.states import Role
from apps.jobs.models import Job, Run
from apps.jobs.states import RunState
from apps.projects.models import Project
from tests.access.factories import make_superuser, make_user
from tests.jobs.factories import make_job, make_project, make_run

pytestmark = pytest.mark.django_db

LIST = "/admin/jobs/job/"


@pytest.fixture
def project() -> Project:
    return make_project()


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def member(project: Project, role: Role) -> Client:
    return logged_in(make_user(roles={project: role}))


def said(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def form(project: Project, **fields: Any) -> dict[str, Any]:
    return {
        "project": project.pk,
        "name": "pages",
        "spider": "yardspider.site:SiteSpider",
        "arguments": "",
        "speed": "0",
        "concurrency": "100",
        "policy": "random",
        "agents": "0",
        "obey_robots": "on",
        "downloader": "http",
        "timeout_seconds": "15",
        "max_body_bytes": "8388608",
        "follow_redirects": "on",
        "max_redirects": "10",
        "switch_retries": "3",
        "max_failed_percent": "0",
        "max_exceptions": "",
        "min_items": "",
        "trial_lost_percent": "0",
        "trial_changed_percent": "100",
        "impersonate": "chrome",
        "use_cookies": "on",
        "verify_tls": "on",
        "keep_pages": "failed",
        "pages_sample": "100",
        "pages_days": "30",
        "cut": "",
        "enabled": "on",
        "notes": "",
        "time_zone": "UTC",
        "overlap": "skip",
        "misfire": "once",
        "priority": "0",
        "links-TOTAL_FORMS": "0",
        "links-INITIAL_FORMS": "0",
    } | fields


@pytest.mark.covers("S1.3")
def test_an_editor_adds_a_job_and_the_trail_says_so(project: Project) -> None:
    client = member(project, Role.EDITOR)
    response = client.post(f"{LIST}add/", form(project, arguments='{"start": "https://a.org/"}'))
    assert response.status_code == 302, response.content.decode()
    job = Job.objects.get()
    assert job.arguments == {"start": "https://a.org/"}
    entry = AuditRecord.objects.get(action="jobs.add_job")
    assert (entry.action, entry.project_id, entry.object_id) == (
        "jobs.add_job",
        project.pk,
        str(job.pk),
    )


def test_a_change_is_recorded_with_what_was_before(project: Project) -> None:
    job = make_job(project=project, name="pages", spider="a:B", arguments={"x": 1})
    client = member(project, Role.EDITOR)
    changed = form(project, spider="a:C", arguments='{"x": 2}')
    assert client.post(f"{LIST}{job.pk}/change/", changed).status_code == 302
    entry = AuditRecord.objects.get(action="jobs.change_job")
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["arguments"], entry.after["arguments"]) == ({"x": 1}, {"x": 2})


def test_bad_arguments_name_the_position_and_stay_in_the_form(project: Project) -> None:
    client = member(project, Role.EDITOR)
    typed = '{"start": "https://a.org/",\n "depth" 3}'
    page = client.post(f"{LIST}add/", form(project, arguments=typed)).content.decode()
    assert "Line 2, column 10: a colon is missing here." in page
    assert "&quot;depth&quot; 3}" in page
    assert not Job.objects.exists()


@pytest.mark.slow("1 s")
def test_a_wrong_spider_and_a_second_job_of_the_name_are_refused(project: Project) -> None:
    make_job(project=project, name="pages")
    client = member(project, Role.EDITOR)
    page = client.post(f"{LIST}add/", form(project, spider="no colon")).content.decode()
    assert "Write it as module:Class" in page
    page = client.post(f"{LIST}add/", form(project)).content.decode()
    assert "A job of this name already exists in the project." in page
    assert Job.objects.count() == 1


def test_an_editor_cannot_put_a_job_into_another_project(project: Project) -> None:
    other = make_project()
    client = logged_in(make_user(roles={project: Role.EDITOR, other: Role.VIEWER}))
    assert client.post(f"{LIST}add/", form(other)).status_code == 200
    assert not Job.objects.exists()


def test_the_start_button_starts_and_shows_the_run(project: Project) -> None:
    job = make_job(project=project)
    client = member(project, Role.OPERATOR)
    page = client.get(f"/jobs/{job.pk}").content.decode()
    start = reverse("admin:jobs_job_start", args=[job.pk])
    assert f'action="{start}"' in page
    response = client.post(start)
    run = Run.objects.get(job=job)
    assert response.headers["Location"] == f"/runs/{run.pk}"
    assert AuditRecord.objects.filter(action="jobs.start_run", project=project).count() == 1


def test_starting_takes_a_post_and_a_csrf_token(project: Project) -> None:
    job = make_job(project=project)
    start = reverse("admin:jobs_job_start", args=[job.pk])
    user = make_user(roles={project: Role.OPERATOR})
    assert logged_in(user).get(start).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    assert strict.post(start).status_code == 403
    assert not Run.objects.exists()


@pytest.mark.slow("1 s")
def test_a_viewer_sees_no_button_and_cannot_start(project: Project) -> None:
    job = make_job(project=project)
    client = member(project, Role.VIEWER)
    start = reverse("admin:jobs_job_start", args=[job.pk])
    assert start not in client.get(LIST).content.decode()
    assert start not in client.get(f"{LIST}{job.pk}/change/").content.decode()
    assert start not in client.get(f"/jobs/{job.pk}").content.decode()
    assert client.post(start).status_code == 403
    assert not Run.objects.exists()


def test_other_peoples_jobs_do_not_exist(project: Project) -> None:
    job = make_job()
    client = member(project, Role.ADMIN)
    assert str(job) not in client.get(LIST).content.decode()
    assert client.post(reverse("admin:jobs_job_start", args=[job.pk])).status_code == 404
    assert not Run.objects.exists()


def test_the_project_filter_names_only_visible_projects(project: Project) -> None:
    other = make_project(name="Somebody else's")
    make_job(project=project)
    page = member(project, Role.VIEWER).get(LIST).content.decode()
    assert project.name in page
    assert other.name not in page


def test_a_disabled_job_is_not_started_and_says_why(project: Project) -> None:
    job = make_job(project=project, name="asleep", enabled=False)
    client = member(project, Role.OPERATOR)
    response = client.post(reverse("admin:jobs_job_start", args=[job.pk]))
    assert response.headers["Location"] == f"/jobs/{job.pk}"
    assert said(response) == ["Job asleep is disabled."]
    assert not Run.objects.exists()


def test_a_start_that_is_refused_links_the_active_run(project: Project) -> None:
    job = make_job(project=project, name="books", overlap="skip")
    active = make_run(job=job, state=RunState.RUNNING)
    client = member(project, Role.OPERATOR)
    page = client.post(reverse("admin:jobs_job_start", args=[job.pk]), follow=True)
    text = page.content.decode()
    assert f'href="/runs/{active.pk}">Open run {active.pk}</a>' in text
    assert "Start when it has ended" in text
    start = reverse("admin:jobs_job_start", args=[job.pk])
    client.post(start, {"overlap": "queue"})
    assert Run.objects.get(waits_for=active).job == job


def test_the_bulk_action_reports_counts_and_reasons(project: Project) -> None:
    jobs = [make_job(project=project), make_job(project=project)]
    asleep = make_job(project=project, name="asleep", enabled=False)
    client = member(project, Role.OPERATOR)
    chosen = [job.pk for job in (*jobs, asleep)]
    response = client.post(LIST, {"action": "start_now", "_selected_action": chosen})
    assert sorted(said(response)) == ["2 runs were started.", "Job asleep is disabled."]
    assert Run.objects.count() == 2


def test_the_bulk_action_needs_the_role_in_each_project(project: Project) -> None:
    mine, other = make_job(project=project), make_job()
    user = make_user(roles={project: Role.OPERATOR, other.project: Role.VIEWER})
    response = logged_in(user).post(
        LIST, {"action": "start_now", "_selected_action": [mine.pk, other.pk]}
    )
    assert len(said(response)) == 2
    assert Run.objects.get().job == mine


@pytest.mark.slow("1 s")
def test_the_list_shows_the_newest_run_in_a_fixed_number_of_queries(
    project: Project, django_assert_max_num_queries: Any
) -> None:
    client = member(project, Role.OPERATOR)
    for _ in range(3):
        job = make_job(project=project)
        make_run(job=job, state=RunState.EXITED)
        make_run(job=job, state=RunState.FAILED)
    with django_assert_max_num_queries(15) as few:
        page = client.get(LIST).content.decode()
    cost = len(few)
    assert page.count("failed\n") == 3
    assert "exited\n" not in page
    for _ in range(30):
        make_run(job=make_job(project=project), state=RunState.RUNNING)
    with django_assert_max_num_queries(cost):
        assert client.get(LIST).status_code == 200


def test_the_page_of_a_job_lists_its_latest_runs(project: Project) -> None:
    job = make_job(project=project)
    runs = [make_run(job=job, state=RunState.EXITED) for _ in range(12)]
    page = logged_in(make_superuser()).get(f"/jobs/{job.pk}").content.decode()
    assert f"/runs/{runs[-1].pk}" in page
    assert f'"/runs/{runs[0].pk}"' not in page
