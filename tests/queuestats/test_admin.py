"""Runs with their books, and failed requests, in the admin."""

from __future__ import annotations

import csv
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.access.models import AuditRecord, User
from apps.access.states import Role
from apps.jobs.states import RunState
from apps.queuestats.admin import runs
from apps.queuestats.models import FailedRequest
from tests.access.factories import make_superuser, make_user
from tests.confirmation import confirm, press
from tests.jobs.factories import make_job, make_project, make_run
from tests.queuestats.factories import report

pytestmark = pytest.mark.django_db

LIST = "/admin/jobs/run/"
FAILURES = "/admin/queuestats/failedrequest/"


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def said(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


@pytest.mark.slow("2 s")
@pytest.mark.covers("S1.17")
def test_the_list_shows_the_books_with_one_query_more_for_the_page(
    django_assert_max_num_queries: Any,
) -> None:
    client = logged_in(make_superuser())
    run = make_run(state=RunState.RUNNING, job=make_job(name="pages"))
    report(run, total=12_345, success=12_000, failed=45, queued=300)
    with django_assert_max_num_queries(10) as few:
        page = client.get(LIST).content.decode()
    cost = len(few)
    for text in ("12,345", "12,000", "45", "300", f'href="/runs/{run.pk}"', "running\n"):
        assert text in page, text
    for _ in range(30):
        report(make_run(state=RunState.EXITED), total=1, success=1)
    with django_assert_max_num_queries(cost):
        assert client.get(LIST).status_code == 200


def test_the_filters_find_what_failed() -> None:
    client = logged_in(make_superuser())
    failed, exited = make_run(state=RunState.FAILED), make_run(state=RunState.EXITED)
    page = client.get(f"{LIST}?state__in=failed,lost").content.decode()
    assert f"/runs/{failed.pk}" in page
    assert f"/runs/{exited.pk}" not in page
    page = client.get(f"{LIST}?state__exact=exited").content.decode()
    assert f"/runs/{exited.pk}" in page
    assert f"/runs/{failed.pk}" not in page


def test_the_filters_name_only_visible_jobs() -> None:
    mine = make_job(name="my pages")
    make_run(job=mine)
    make_run(job=make_job(name="their pages"))
    client = logged_in(make_user(roles={mine.project: Role.VIEWER}))
    page = client.get(LIST).content.decode()
    assert "my pages" in page
    assert "their pages" not in page


@pytest.mark.slow("1 s")
def test_the_stop_button_stops_one_run_and_the_trail_says_so() -> None:
    run = make_run(state=RunState.RUNNING)
    client = logged_in(make_user(roles={run.job.project: Role.OPERATOR}))
    stop = reverse("admin:jobs_run_stop", args=[run.pk])
    assert stop in client.get(LIST).content.decode()
    assert client.get(f"{LIST}{run.pk}/change/").headers["Location"] == f"/runs/{run.pk}"
    assert stop in client.get(f"/runs/{run.pk}").content.decode()
    assert client.get(stop).status_code == 405
    assert confirm(client, stop).headers["Location"] == f"/runs/{run.pk}"
    run.refresh_from_db()
    assert run.state == RunState.STOPPING
    assert AuditRecord.objects.filter(action="jobs.stop_run").count() == 1
    assert stop not in client.get(LIST).content.decode()
    assert said(confirm(client, stop)) == [f"Run {run.pk} is already stopping."]


def test_a_viewer_cannot_stop_and_a_stranger_sees_nothing() -> None:
    run = make_run(state=RunState.RUNNING)
    stop = reverse("admin:jobs_run_stop", args=[run.pk])
    viewer = logged_in(make_user(roles={run.job.project: Role.VIEWER}))
    assert stop not in viewer.get(LIST).content.decode()
    assert viewer.post(stop).status_code == 403
    stranger = logged_in(make_user(roles={make_project(): Role.ADMIN}))
    assert stranger.post(stop).status_code == 404
    run.refresh_from_db()
    assert run.state == RunState.RUNNING


def test_stopping_several_reports_counts_and_reasons() -> None:
    project = make_project()
    job = make_job(project=project)
    runs = [make_run(job=job, state=s) for s in (RunState.QUEUED, RunState.RUNNING)]
    ended = make_run(job=job, state=RunState.EXITED)
    client = logged_in(make_user(roles={project: Role.OPERATOR}))
    chosen = {"_selected_action": [run.pk for run in (*runs, ended)]}
    response = confirm(client, LIST, chosen | {"action": "stop_selected"})
    assert sorted(said(response)) == ["2 runs are stopping.", f"Run {ended.pk} has already ended."]


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    ("action", "state", "said_of_one"),
    [
        ("pause", RunState.RUNNING, "1 run is pausing."),
        ("resume", RunState.PAUSED, "1 run is resuming."),
        ("restart", RunState.RUNNING, "1 run is restarting."),
        ("stop", RunState.RUNNING, "1 run is stopping."),
    ],
)
def test_bulk_actions_count_what_they_did_and_say_what_refused(
    action: str, state: RunState, said_of_one: str
) -> None:
    project = make_project()
    job = make_job(project=project)
    able, ended = make_run(job=job, state=state), make_run(job=job, state=RunState.EXITED)
    theirs = make_run(state=state)
    client = logged_in(make_user(roles={project: Role.OPERATOR, theirs.job.project: Role.VIEWER}))
    chosen = {"_selected_action": [able.pk, ended.pk, theirs.pk], "action": f"{action}_selected"}
    texts = said(press(client, LIST, chosen))
    assert said_of_one in texts
    assert f"Run {ended.pk} has already ended." in texts
    assert any("your role in" in text for text in texts)
    able.refresh_from_db()
    theirs.refresh_from_db()
    assert able.state != state
    assert theirs.state == state


def test_many_refusals_are_summed_up() -> None:
    job = make_job()
    runs = [make_run(job=job, state=RunState.EXITED) for _ in range(13)]
    client = logged_in(make_superuser())
    chosen = {"_selected_action": [run.pk for run in runs], "action": "pause_selected"}
    texts = said(client.post(LIST, chosen))
    assert len(texts) == 11
    assert "3 more were refused." in texts


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("action", ["pause", "resume", "restart", "freeze", "thaw", "stop"])
def test_every_button_is_for_operators_and_by_post(action: str) -> None:
    run = make_run(state=RunState.RUNNING)
    address = reverse(f"admin:jobs_run_{action}", args=[run.pk])
    viewer = logged_in(make_user(roles={run.job.project: Role.VIEWER}))
    assert viewer.post(address).status_code == 403
    operator = logged_in(make_user(roles={run.job.project: Role.OPERATOR}))
    assert operator.get(address).status_code == 405
    assert press(operator, address).headers["Location"] == f"/runs/{run.pk}"


@pytest.mark.covers("S3.20")
def test_the_pace_is_changed_by_operators_and_by_post() -> None:
    run = make_run(state=RunState.RUNNING)
    address = reverse("admin:jobs_run_tune", args=[run.pk])
    given = {"concurrency": "7", "speed": ""}
    viewer = logged_in(make_user(roles={run.job.project: Role.VIEWER}))
    assert viewer.post(address, given).status_code == 403
    stranger = logged_in(make_user(roles={make_project(): Role.ADMIN}))
    assert stranger.post(address, given).status_code == 404
    operator = logged_in(make_user(roles={run.job.project: Role.OPERATOR}))
    assert operator.get(address).status_code == 405
    assert operator.post(address, given).headers["Location"] == f"/runs/{run.pk}"
    assert run.commands.get().settings == {"concurrency": 7}
    for wrong, said_of_it in (
        ({"concurrency": "many"}, "Window and requests per second must be numbers."),
        ({"speed": "nan"}, "The speed is a number from 0 to 1000000."),
        ({}, "Give a window, a speed, or both."),
    ):
        assert said(operator.post(address, wrong))[-1] == said_of_it
    assert run.commands.count() == 1


def test_nobody_adds_changes_or_deletes_a_run() -> None:
    run = make_run(state=RunState.EXITED, arguments={"start": "https://a.org/"})
    client = logged_in(make_superuser())
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.get(f"{LIST}{run.pk}/delete/").status_code == 403
    assert client.get(f"{LIST}{run.pk}/change/").headers["Location"] == f"/runs/{run.pk}"
    assert client.get(f"{LIST}none/change/").status_code == 404
    assert "https://a.org/" in client.get(f"/runs/{run.pk}/settings").content.decode()


# The admin theme's filter of dates gives naive ones.
@pytest.mark.filterwarnings("ignore:DateTimeField Run.created_at:RuntimeWarning")
@pytest.mark.covers("UX.4")
def test_runs_are_sorted_by_their_figures_and_exported() -> None:
    job = make_job(name="=books")
    now = timezone.now()
    runs = []
    for number in (2, 1, 3):
        started = now - timedelta(minutes=number)
        run = make_run(
            job=job,
            state=RunState.EXITED,
            created_at=started,
            started_at=started,
            ended_at=now,
            items=number,
            requests_total=number,
            requests_failed=number,
        )
        report(run, total=10 * number, failed=number, items=number, success=9 * number)
        runs.append(run)
    client = logged_in(make_superuser())
    least_first = [runs[1].pk, runs[0].pk, runs[2].pk]
    for title in ("items", "total", "failed", "duration"):
        column = 1 + client.get(LIST).context["cl"].list_display.index(title) - 1
        for sign, pks in (("", least_first), ("-", least_first[::-1])):
            shown = client.get(LIST, {"o": f"{sign}{column}"}).context["cl"].result_list
            assert [run.pk for run in shown] == pks, title
    day = f"{now:%Y-%m-%d}"
    asked = {"created_at_from_0": day, "created_at_from_1": "00:00:00"}
    assert client.get(LIST, asked).status_code == 200
    chosen = {"action": "export_csv", "_selected_action": [run.pk for run in runs]}
    rows = list(csv.DictReader(client.post(LIST, chosen).content.decode().splitlines()))
    assert [row["items"] for row in rows] == ["3", "1", "2"]
    assert {row["outcome"] for row in rows} == {"finished_with_errors"}
    assert {row["job"] for row in rows} == {"'=books"}


def test_failed_requests_are_found_by_their_run(django_assert_max_num_queries: Any) -> None:
    run, other = make_run(state=RunState.RUNNING), make_run(state=RunState.RUNNING)
    report(run, total=3, failed=3, failures=3)
    report(other, total=60, failed=60, failures=60)
    client = logged_in(make_superuser())
    with django_assert_max_num_queries(8):
        page = client.get(f"{FAILURES}?owner={run.owner}").content.decode()
    assert page.count("https://a.org/") == 3
    assert f"/runs/{run.pk}" in page
    assert f'href="/runs/{other.pk}"' not in page


def test_failed_requests_of_other_projects_are_not_shown() -> None:
    run = make_run(state=RunState.RUNNING)
    report(run, total=3, failed=3, failures=3)
    client = logged_in(make_user(roles={make_project(): Role.ADMIN}))
    assert "https://a.org/" not in client.get(FAILURES).content.decode()


def test_an_address_cannot_become_markup() -> None:
    run = make_run(state=RunState.RUNNING)
    FailedRequest.objects.create(
        project=run.job.project,
        owner=run.owner,
        boot="b1",
        seq=1,
        url="https://a.org/<script>alert(1)</script>",
        reason="<img src=x>",
        at=run.created_at,
    )
    client = logged_in(make_superuser())
    for address in (FAILURES, f"/runs/{run.pk}"):
        page = client.get(address).content.decode()
        assert "<script>alert(1)" not in page
        assert "<img src=x>" not in page


@pytest.mark.slow("3 s")
def test_runs_are_found_by_job_number_person_and_the_reason_of_a_bad_end() -> None:
    news = make_job(name="Evening news")
    mine = make_run(job=news, requested_by="ann")
    bad, good = make_job(name="bad"), make_job(name="good")
    failed = make_run(job=bad, state=RunState.FAILED, reason="exit: no such table")
    fine = make_run(job=good, state=RunState.EXITED, reason="no such worry")
    client = logged_in(make_superuser())

    def found(term: str) -> set[int]:
        answer = client.get(LIST, {"q": term})
        return {run.pk for run in answer.context["cl"].result_list}

    assert found("news evening") == {mine.pk}
    assert found('"evening news"') == {mine.pk}
    assert found("ann") == {mine.pk}
    assert found("such table") == {failed.pk}
    assert found(str(fine.pk)) == {fine.pk}
    assert found("morning news") == set()
    assert found("9" * 30) == set()
    assert found("9" * 5_000) == set()
    assert found(" ") == {mine.pk, failed.pk, fine.pk}


@pytest.mark.slow("1 s")
def test_reasons_are_searched_among_the_newest(
    monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    job = make_job(name="others")
    old = make_run(job=job, state=RunState.LOST, reason="no room on the disk")
    new = make_run(job=job, state=RunState.LOST, reason="The DISK is gone")
    make_run(job=job, state=RunState.EXITED)
    client = logged_in(make_superuser())

    def found(words: str) -> set[int]:
        with django_assert_max_num_queries(12):
            page = client.get(LIST, {"q": words}).context["cl"]
        return {run.pk for run in page.result_list}

    assert found("disk") == {old.pk, new.pk}
    assert found("9" * 30) == set()
    assert found("9" * 5_000) == set()
    monkeypatch.setattr(runs, "SEARCHED_REASONS", 1)
    assert found("disk") == {new.pk}


def test_a_member_finds_nothing_of_other_projects() -> None:
    mine, others = make_project(), make_project()
    theirs = make_job(project=others, name="disk")
    for fields in ({}, {"state": RunState.FAILED, "reason": "disk"}, {"requested_by": "disk"}):
        make_run(job=theirs, **fields)
    member = make_user(roles={mine: Role.VIEWER})
    assert not logged_in(member).get(LIST, {"q": "disk"}).context["cl"].result_list
