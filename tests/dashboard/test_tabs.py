"""Tabs of runs and jobs, as they come from the server."""

from __future__ import annotations

import re
from typing import Any

import pytest

from apps.access.states import Role
from apps.jobs.states import RunState
from tests.access.factories import make_superuser, make_user
from tests.dashboard.test_pages import ended_run, logged_in, text_of
from tests.jobs.factories import make_job, make_project, make_run
from tests.queuestats.factories import report

pytestmark = pytest.mark.django_db


@pytest.mark.covers("UX.4")
def test_a_run_is_compared_with_the_previous_one() -> None:
    job = make_job()
    first = ended_run(RunState.EXITED, job=job)
    report(first, total=100, success=100, items=50, bytes_received=2048)
    ended_run(RunState.EXITED, job=job, replay_of=first)
    second = ended_run(RunState.EXITED, job=job)
    report(second, total=110, success=109, failed=1, items=25, bytes_received=2048)
    client = logged_in(make_superuser())
    text = text_of(client.get(f"/runs/{second.pk}"))
    assert f"Against the previous run #{first.pk}" in text
    assert "items 50 → 25 (-50 %)" in text
    assert "requests 100 → 110 (+10 %)" in text
    assert "failed 0 → 1 received" in text
    assert (
        f"/runs/{second.pk}/compare?with={first.pk}"
        in client.get(f"/runs/{second.pk}").content.decode()
    )
    assert "Against the previous run" not in text_of(client.get(f"/runs/{first.pk}"))


@pytest.mark.covers("UX.4")
def test_the_log_of_an_ended_run_is_not_live() -> None:
    client = logged_in(make_superuser())
    ended, active = make_run(state=RunState.EXITED), make_run(state=RunState.RUNNING)
    html = client.get(f"/runs/{ended.pk}/log").content.decode()
    assert "data-log data-ended" in html
    assert "This log has no lines." in html
    assert "No log lines yet" not in html
    assert "data-log data-ended" not in client.get(f"/runs/{active.pk}/log").content.decode()
    assert 'data-active="false"' in client.get(f"/runs/{ended.pk}/head").content.decode()
    stranger = logged_in(make_user(roles={make_project(): Role.ADMIN}))
    for tab in ("log", "head", "settings"):
        assert stranger.get(f"/runs/{ended.pk}/{tab}").status_code == 404


@pytest.mark.covers("UX.3")
def test_a_job_is_read_first_and_says_what_it_overrides(django_assert_max_num_queries: Any) -> None:
    job = make_job(cron="0 6 * * *", speed=2.5, arguments={"start": "https://a.org/"})
    for _ in range(12):
        ended_run(RunState.EXITED, job=job)
    viewer = logged_in(make_user(roles={job.project: Role.VIEWER}))
    with django_assert_max_num_queries(16):
        page = viewer.get(f"/jobs/{job.pk}")
    text = text_of(page)
    assert "Every day at 06:00" in text
    assert "speed 2.5" in text
    assert "start https://a.org/" in text
    assert "Run now with other arguments" not in text
    tabs = re.findall(r'<a href="([^"]+)"', page.content.decode().partition("cy-tabs")[2])[:6]
    assert tabs == [
        f"/jobs/{job.pk}",
        f"/jobs/{job.pk}/runs",
        f"/jobs/{job.pk}/data",
        f"/admin/jobs/job/{job.pk}/schedule",
        f"/admin/jobs/job/{job.pk}/change/",
        f"/jobs/{job.pk}/alerts",
    ]
    for tab in tabs:
        assert viewer.get(tab).status_code == 200
    stranger = logged_in(make_user(roles={make_project(): Role.ADMIN}))
    assert {stranger.get(tab).status_code for tab in tabs if "change" not in tab} == {404}
    usual = text_of(viewer.get(f"/jobs/{make_job(project=job.project, speed=None).pk}"))
    assert "Nothing: the spider's own settings hold." in usual


@pytest.mark.covers("UX.3")
def test_runs_of_a_job_are_paged() -> None:
    job = make_job()
    runs = [ended_run(RunState.EXITED, job=job).pk for _ in range(52)]
    client = logged_in(make_superuser())
    page = client.get(f"/jobs/{job.pk}/runs").content.decode()
    assert f'href="/runs/{runs[-1]}"' in page
    following = re.search(r'rel="next" href="([^"]+)"', page)
    assert following
    last = client.get(f"/jobs/{job.pk}/runs{following[1]}").content.decode()
    assert f'href="/runs/{runs[0]}"' in last
    assert f'href="/runs/{runs[2]}"' not in last
    assert 'rel="next"' not in last
