"""Schedules, planned runs and links over REST and on the pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.access.states import Role
from apps.jobs.models import Job, JobLink, PlannedRun
from apps.jobs.services import add_link, plan_due, sync_schedule
from tests.access.factories import Api, enter, make_project, make_superuser, make_user
from tests.jobs.factories import make_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    """Each ten minutes since an hour ago, of which nobody has seen anything."""
    job = make_job(cron="*/10 * * * *", time_zone="Asia/Shanghai", misfire="once")
    sync_schedule(job=job, now=timezone.now() - timedelta(hours=1))
    plan_due(now=timezone.now())
    return job


@pytest.fixture
def api(job: Job) -> Api:
    return Api(make_user(roles={job.project: Role.EDITOR}))


@pytest.mark.covers("S1.3")
def test_the_next_five_times_in_both_zones(api: Api, job: Job) -> None:
    seen = api.get(f"jobs/{job.pk}/schedule").json()
    assert (seen["cron"], seen["time_zone"], seen["active"]) == (job.cron, job.time_zone, True)
    times = [
        (datetime.fromisoformat(each["local"]), datetime.fromisoformat(each["utc"]))
        for each in seen["next_times"]
    ]
    assert len(times) == 5
    assert all(local == utc and "+08:00" in local.isoformat() for local, utc in times)
    assert all(utc.minute % 10 == 0 and utc > timezone.now() for _local, utc in times)
    assert sum(seen["counts"].values()) == PlannedRun.objects.count() in (6, 7)
    assert seen["counts"]["missed"] >= 4


def test_a_job_without_cron_has_no_times(api: Api, job: Job) -> None:
    bare = make_job(project=job.project)
    seen = api.get(f"jobs/{bare.pk}/schedule").json()
    assert (seen["active"], seen["next_times"], seen["planned_through"]) == (False, [], None)


def test_a_preview_stores_nothing(api: Api) -> None:
    body = {"cron": "30 2 29 MAR *", "time_zone": "Europe/Berlin"}
    seen = api.post("jobs/schedule/preview", body)
    assert seen.status_code == 200
    # In 2026 and 2032, say, that is a time which the clocks leave out.
    assert len(seen.json()["next_times"]) == 5
    assert api.post("jobs/schedule/preview", {}).json() == {"words": "", "next_times": []}


@pytest.mark.covers("S1.12")
@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"cron": "61 * * * *"}, "cron", "minute “61”: not between 0 and 59"),
        ({"cron": "* * 31 2 *"}, "cron", "never fires"),
        ({"cron": "* * * * *", "time_zone": "Mars/Base"}, "time_zone", "is not a time zone"),
        ({"cron": ["*"]}, "cron", "string"),
        ({"cron": "* " * 200}, "cron", "100"),
    ],
)
def test_a_preview_says_what_is_wrong(
    api: Api, body: dict[str, Any], field: str, words: str
) -> None:
    refused = api.post("jobs/schedule/preview", body)
    assert refused.status_code == 400
    assert words in refused.json()["fields"][field][0]


def test_planned_runs_are_listed_and_filtered(api: Api, job: Job) -> None:
    everything = api.get("planned-runs").json()["results"]
    assert len(everything) == PlannedRun.objects.count()
    assert everything[0]["job"] == job.pk
    missed = api.get(f"planned-runs?job={job.pk}&outcome=missed").json()["results"]
    assert {row["outcome"] for row in missed} == {"missed"}
    assert all("later run replaces it" in row["reason"] for row in missed)
    later = f"{timezone.now() + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
    assert api.get(f"planned-runs?planned_from={later}").json()["results"] == []
    assert api.get("planned-runs?outcome=lost").status_code == 400


@pytest.mark.slow("1 s")
def test_links_are_made_listed_and_removed(api: Api, job: Job) -> None:
    other = make_job(project=job.project, name="B")
    made = api.post("job-links", {"job": other.pk, "after": job.pk, "condition": "always"})
    assert made.status_code == 201
    assert api.get(f"job-links?after_job={job.pk}").json()["results"][0]["job"] == other.pk
    changed = api.patch(f"job-links/{made.json()['id']}", {"condition": "failed", "job": job.pk})
    assert (changed.json()["condition"], changed.json()["job"]) == ("failed", other.pk)
    again = api.post("job-links", {"job": other.pk, "after": job.pk})
    assert (again.status_code, again.json()["code"]) == (409, "link_exists")
    circle = api.post("job-links", {"job": job.pk, "after": other.pk})
    assert (circle.status_code, circle.json()["code"]) == (422, "link_cycle")
    assert f"{job.name} → B → {job.name}" in circle.json()["fields"]["after"][0]
    assert api.delete(f"job-links/{made.json()['id']}").status_code == 204
    assert not JobLink.objects.exists()


def test_jobs_of_others_cannot_be_linked(api: Api, job: Job) -> None:
    other = make_job()
    for body in ({"job": job.pk, "after": other.pk}, {"job": other.pk, "after": job.pk}):
        assert api.post("job-links", body).status_code == 400
    hidden = add_link(job=job, after=other, condition="always", actor=None)
    assert api.get("job-links").json()["results"] == []
    assert api.get(f"job-links/{hidden.pk}").status_code == 404


# --- pages -----------------------------------------------------------------------------------


@pytest.fixture
def browser() -> Client:
    client = Client()
    client.force_login(make_superuser())
    return client


@pytest.mark.slow("2 s")
def test_the_page_of_a_job_shows_what_comes_and_what_was_missed(browser: Client, job: Job) -> None:
    text = browser.get(f"/admin/jobs/job/{job.pk}/schedule").content.decode()
    assert "Next runs" in text
    assert "Missed, skipped and late runs" in text
    assert "a later run replaces it" in text
    next_time = PlannedRun.objects.latest("planned_at").planned_at + timedelta(minutes=10)
    assert f"{next_time:%Y-%m-%d %H:%M}" in text
    assert f"{next_time + timedelta(hours=8):%Y-%m-%d %H:%M} CST" in text
    listed = browser.get(f"/admin/jobs/plannedrun/?schedule__job__id__exact={job.pk}")
    assert listed.status_code == 200
    assert "Missed" in listed.content.decode() or "missed" in listed.content.decode()
    row = PlannedRun.objects.earliest("planned_at")
    assert browser.get(f"/admin/jobs/plannedrun/{row.pk}/change/").status_code == 200


def links_form(*rows: tuple[int, str]) -> dict[str, str]:
    form = {"links-TOTAL_FORMS": str(len(rows)), "links-INITIAL_FORMS": "0"}
    for number, (after, condition) in enumerate(rows):
        form |= {f"links-{number}-after": str(after), f"links-{number}-condition": condition}
    return form


@pytest.mark.slow("2 s")
def test_links_are_made_on_the_page_of_the_job(browser: Client, job: Job) -> None:
    other = make_job(project=job.project)
    address = f"/admin/jobs/job/{job.pk}/change/"
    page = browser.get(address)
    form = page.context["adminform"].form
    values = {
        name: value
        for name in form.fields
        if (value := form[name].value()) is not None and value is not False
    }
    sent = browser.post(address, values | links_form((other.pk, "failed")))
    assert sent.status_code == 302, sent.context["adminform"].errors
    link = JobLink.objects.get()
    assert (link.job, link.after, link.condition) == (job, other, "failed")
    circle = f"/admin/jobs/job/{other.pk}/change/"
    values["name"], values["project"] = other.name, other.project_id
    refused = browser.post(circle, values | links_form((job.pk, "always")))
    assert refused.status_code == 200
    assert "would form a cycle" in refused.content.decode()
    assert JobLink.objects.count() == 1


def test_beats_rows_are_to_look_at(browser: Client, job: Job) -> None:
    from apps.jobs.services.wakeups import mend_wake_ups

    mend_wake_ups()
    text = browser.get("/admin/django_celery_beat/periodictask/").content.decode()
    assert f"job {job.pk}" in text
    assert browser.get("/admin/django_celery_beat/periodictask/add/").status_code == 403
    assert browser.get("/admin/django_celery_beat/crontabschedule/").status_code == 404


def test_times_in_utc_whatever_the_zone_of_the_pages(browser: Client, settings: Any) -> None:
    settings.TIME_ZONE = "America/New_York"
    job = make_job(cron="0 12 * * *", time_zone="Asia/Shanghai")
    sync_schedule(job=job, now=datetime(2026, 1, 1, tzinfo=UTC))
    text = browser.get(f"/admin/jobs/job/{job.pk}/schedule").content.decode()
    assert "12:00 CST" in text
    assert " 04:00<" in text


def test_people_without_a_project_see_no_schedule(job: Job) -> None:
    stranger = Api(make_user(roles={make_project(): Role.ADMIN}))
    assert stranger.get(f"jobs/{job.pk}/schedule").status_code == 404
    assert stranger.get("planned-runs").json()["results"] == []


@pytest.mark.slow("1 s")
@pytest.mark.covers("UX.3")
def test_the_tab_saves_a_schedule_and_says_what_is_wrong(job: Job) -> None:
    editor, viewer = (
        enter(make_user(roles={job.project: role})) for role in (Role.EDITOR, Role.VIEWER)
    )
    address = f"/admin/jobs/job/{job.pk}/schedule"
    values = {"cron": "0 6 * * *", "time_zone": "Europe/Paris", "overlap": "queue"}
    values["misfire"] = "skip"
    page = editor.get(address).content.decode()
    assert 'data-cron="0 6 * * *"' in page
    assert editor.post(address, values).headers["Location"] == address
    job.refresh_from_db()
    assert (job.cron, job.time_zone, job.overlap) == ("0 6 * * *", "Europe/Paris", "queue")
    assert "Every day at 06:00" in editor.get(address).content.decode()
    wrong = editor.post(address, values | {"cron": "0 66 * * *", "time_zone": "Paris"})
    assert wrong.status_code == 200
    assert "The cron expression is not valid" in wrong.content.decode()
    assert "is not a time zone" in wrong.content.decode().replace("&#x27;", "'")
    job.refresh_from_db()
    assert job.cron == "0 6 * * *"
    assert "data-cron" not in viewer.get(address).content.decode()
    assert viewer.post(address, values).status_code == 403


def test_the_preview_has_words_in_the_language_of_the_request(api: Api) -> None:
    body = {"cron": "0 6 * * 1-5", "time_zone": "UTC"}
    assert api.post("jobs/schedule/preview", body).json()["words"] == "Monday to Friday at 06:00"
