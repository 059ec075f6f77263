"""The page of errors: kinds across the runs of each job, and the page of one log."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.access.states import Role
from apps.joblogs.models import ErrorGroup
from apps.joblogs.queries import sees_stream
from apps.joblogs.services import close_log_store
from apps.jobs.models import Run
from tests.access.factories import enter, make_superuser, make_user
from tests.joblogs.factories import make_build, store_texts
from tests.jobs.factories import make_job, make_run
from tests.projects.build_factories import make_image

pytestmark = pytest.mark.django_db


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture
def run(now: datetime) -> Run:
    job = make_job()
    job.image = make_image(project=job.project)
    job.save()
    run = make_run(job=job, image=job.image)
    store_texts(run.stream, "ERROR page 1", "ERROR page 2", now=now - timedelta(hours=2))
    old = make_run(job=job)
    store_texts(old.stream, "ERROR rare", now=now - timedelta(days=3))
    return run


def shown(client: Client, query: str = "", status: int = 200) -> str:
    answer = client.get(f"/logs/errors{query}")
    assert answer.status_code == status
    return str(answer.content.decode())


@pytest.mark.slow("1 s")
def test_kinds_are_shown_with_how_often_and_since_when(run: Run) -> None:
    client = enter(make_user(roles={run.job.project: Role.VIEWER}))
    page = shown(client)
    group = ErrorGroup.objects.get(sample="ERROR page 1")
    assert "ERROR page 1" in page
    assert "2 times" in page
    assert "in 1 log" in page
    assert "new with this image" in page
    assert f"run #{run.pk}" in page
    assert f'href="/logs/run:{run.pk}#1.2"' in page
    assert f"/logs?fingerprint={group.fingerprint}&amp;span=1d&amp;job={run.job_id}" in page
    assert "ERROR rare" not in page
    assert "ERROR rare" in shown(client, "?span=7d")
    assert "ERROR rare" not in shown(client, f"?span=7d&image={run.job.image_id}")
    assert "No matching errors" in shown(client, "?state=ignored")
    other = enter(make_user(roles={make_job().project: Role.ADMIN}))
    assert "No matching errors" in shown(other)
    assert 'role="alert"' in shown(other, f"?job={run.job_id}")


@pytest.mark.slow("2 s")
def test_operators_put_a_kind_aside_on_the_page(run: Run) -> None:
    group = ErrorGroup.objects.get(sample="ERROR page 1")
    address = f"/logs/errors/{group.pk}/ignore"
    viewer = enter(make_user(roles={run.job.project: Role.VIEWER}))
    assert address not in shown(viewer)
    assert viewer.post(address).status_code == 403
    operator = enter(make_user(roles={run.job.project: Role.OPERATOR}))
    assert address in shown(operator)
    assert operator.get(address).status_code == 405
    answer = operator.post(address, {"back": "/logs/errors?span=7d"})
    assert answer.headers["Location"] == "/logs/errors?span=7d"
    assert "ERROR page 1" not in shown(operator)
    assert "ERROR page 1" in shown(operator, "?state=ignored")
    back = f"/logs/errors/{group.pk}/watch"
    answer = operator.post(back, {"back": "https://evil.example/"})
    assert answer.headers["Location"] == "/logs/errors"
    assert "ERROR page 1" in shown(operator)
    assert operator.post(f"/logs/errors/{group.pk}/drop").status_code == 404
    stranger = enter(make_user(roles={make_job().project: Role.ADMIN}))
    assert stranger.post(address).status_code == 404


def test_kinds_are_shown_without_counts_while_the_store_is_away(run: Run, settings: Any) -> None:
    client = enter(make_superuser())
    close_log_store()
    settings.LOGS_URL = "sqlite:///proc/nowhere/logs"
    page = shown(client)
    assert "ERROR page 1" in page
    assert "The log store is unavailable" in page
    assert "times" not in page


def test_a_kind_beyond_those_that_are_counted_has_no_count(
    run: Run, monkeypatch: pytest.MonkeyPatch, now: datetime
) -> None:
    monkeypatch.setattr("apps.joblogs.pages.errors.MOST_COUNTED", 1)
    store_texts(run.stream, "ERROR other", boot="later", now=now)
    page = shown(enter(make_superuser()))
    assert "ERROR page 1" in page
    assert "0 times" not in page


def test_a_page_costs_few_queries(now: datetime) -> None:
    for _ in range(12):
        store_texts(make_run().stream, "ERROR one", now=now)
    client = enter(make_superuser())
    shown(client)
    with CaptureQueriesContext(connection) as queries:
        shown(client)
    assert len(queries) <= 12


def test_the_admin_leads_to_the_page(run: Run) -> None:
    client = enter(make_user(roles={run.job.project: Role.VIEWER}))
    answer = client.get("/admin/joblogs/errorgroup/")
    assert answer.headers["Location"] == "/logs/errors"
    home = client.get("/admin/").content.decode()
    assert 'href="/logs/errors"' in home
    assert 'href="/logs"' in home


def test_a_log_has_a_page_that_leads_to_whose_it_is(run: Run) -> None:
    client = enter(make_superuser())
    page = client.get(f"/logs/run:{run.pk}").content.decode()
    assert f'href="/runs/{run.pk}"' in page
    assert f'href="/logs?run={run.pk}"' in page
    assert f"{run.job.name} #{run.pk}" in page
    build = make_build(project=run.job.project)
    page = client.get(f"/logs/build:{build.pk}").content.decode()
    assert f"/admin/projects/build/{build.pk}/change/" in page
    for stream in ("run:0", "run:987654", "job:1", "run:x"):
        assert client.get(f"/logs/{stream}").status_code == 404
    stranger = enter(make_user(roles={make_job().project: Role.ADMIN}))
    assert stranger.get(f"/logs/run:{run.pk}").status_code == 404


def test_a_run_that_goes_while_its_log_is_opened_is_not_found(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen_and_gone(user: object, stream: str) -> bool:
        seen = sees_stream(user, stream)
        run.delete()
        return seen

    monkeypatch.setattr("apps.joblogs.pages.log.sees_stream", seen_and_gone)
    assert enter(make_superuser()).get(f"/logs/{run.stream}").status_code == 404
