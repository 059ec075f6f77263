"""Admin pages of sources: content, permissions and actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.models import Project
from apps.runtime.daemon import Identity
from apps.runtime.services import register_daemon
from apps.sources.models import Credential, Harvest, SourceState
from tests.access.factories import make_project, make_user
from tests.sources.octoparse_double import OctoparseDouble
from tests.sources.records import API, broker_at, publish, sourced

pytestmark = pytest.mark.django_db
LIST = "/admin/sources/sourcestate/"


@pytest.fixture
def project(sqlite_broker_url: str) -> Iterator[Project]:
    cache.clear()
    with broker_at(sqlite_broker_url):
        yield sourced()


def person(project: Project, role: Role) -> Client:
    client = Client()
    user = make_user(roles={project: role})
    client.force_login(user)
    return client


def html_of(answer: Any) -> str:
    assert answer.status_code == 200, answer.content[:500]
    return str(answer.content.decode())


def text_of(answer: Any) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html_of(answer))).split())


def harvest(project: Project, name: str = "news", **fields: Any) -> Harvest:
    now = timezone.now()
    values = {
        "project": project,
        "source": name,
        "started_at": now - timedelta(seconds=10),
        "moved_at": now,
        "total": 1000,
        "start_offset": 900,
        "end_offset": 0,
        "next_offset": 450,
        "batches": 5,
        "read": 500,
        "published": 450,
        "filtered": 30,
        "re_read": 15,
        "refused": 5,
    }
    return Harvest.objects.create(**(values | fields))


def test_every_source_with_progress_speed_books_and_next_start(project: Project) -> None:
    SourceState.objects.create(
        project=project,
        name="news",
        activity="running",
        marker=400,
        last_total=500,
        next_run_at=timezone.now(),
        gaps=[{"from": 0, "to": 49, "why": "seed_rule"}],
    )
    harvest(project)
    publish(project, 1, 3)
    me = Identity(kind="collector", name="box")
    register_daemon(kind=me.kind, name=me.name, boot=me.boot, host=me.host, pid=me.pid)
    page = html_of(person(project, Role.VIEWER).get(LIST))
    text = " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())
    assert "50.0 %" in text
    assert "50/s" in text
    assert "500 read = 450 published + 30 too old + 15 already imported + 5 rejected" in text
    assert "last start offset 400" in text
    assert "now at 450" in text
    assert "never read: 0–49: skipped by the previous program" in text
    assert "job_data 3 records available" in text
    assert "disabled" in text
    # No problems are listed, and a viewer has no buttons.
    assert "data-troubles" not in page
    assert 'formaction="' not in page


def test_what_needs_a_person_comes_first(project: Project) -> None:
    old = timezone.now() - timedelta(minutes=6)
    SourceState.objects.create(project=project, name="news", activity="queued")
    harvest(project, state="failed", reason="error", error="status 500", ended_at=old)
    answer = person(project, Role.VIEWER).get(LIST)
    text = text_of(answer)
    assert "No collector is running" in text
    assert "Waiting: news" in text
    assert "news failed. Start it to resume the import." in text
    assert "status 500" in text
    troubles = html_of(answer).partition("data-troubles")[2].partition("</section>")[0]
    assert f'href="{LIST}source/?project={project.pk}&amp;name=news"' in troubles
    Harvest.objects.all().delete()
    SourceState.objects.update(activity="running", waiting_for="broker: refused")
    harvest(project, moved_at=old, started_at=old, notes=[{"code": "shrunk", "from": 9, "to": 3}])
    text = text_of(person(project, Role.VIEWER).get(LIST))
    assert "news is waiting and will continue automatically. Show broker: refused" in text
    assert "fewer records than before: 9, now 3" in text


def test_a_source_that_was_switched_off_or_taken_out_needs_nobody(project: Project) -> None:
    now = timezone.now()
    register_daemon(kind="collector", name="box", boot="1", host="box", pid=1)
    for name in ("news", "prices", "former"):
        SourceState.objects.create(project=project, name=name)
        harvest(project, name, state="failed", reason="error", error="status 500", ended_at=now)
    answer = person(project, Role.VIEWER).get(LIST)
    text = text_of(answer)
    assert "news failed" in text
    assert "prices failed" not in text
    assert "former failed" not in text
    assert html_of(answer).count("status 500") == 4


@pytest.mark.slow("1 s")
def test_operators_start_and_stop_by_buttons(project: Project) -> None:
    operator = person(project, Role.OPERATOR)
    asked = {"project": project.pk, "name": "news"}
    answer = operator.post(f"{LIST}start", asked, follow=True)
    assert "news: started" in text_of(answer)
    assert SourceState.objects.get().activity == "queued"
    assert "No changes needed." in text_of(
        operator.post(f"{LIST}start", {"project": project.pk}, follow=True)
    )
    answer = operator.post(f"{LIST}stop", asked | {"back": "news"}, follow=True)
    assert answer.redirect_chain[-1][0].endswith(f"source/?project={project.pk}&name=news")
    assert "news: stopping" in text_of(answer)
    refused = operator.post(f"{LIST}start", asked | {"name": "prices"}, follow=True)
    assert "This source is disabled. prices" in text_of(refused)
    assert AuditRecord.objects.filter(action="sources.start").exists()
    viewer = person(project, Role.VIEWER)
    for button in ("start", "stop", "dry-run", "source/marker"):
        assert viewer.post(LIST + button, asked).status_code == 403
        assert operator.get(LIST + button).status_code == 405


@pytest.mark.slow("1 s")
def test_a_dry_run_says_what_would_be_read(project: Project, double: OctoparseDouble) -> None:
    double.total = 270_500
    Credential.objects.create(project=project, name="v", username="collector")
    Project.objects.filter(pk=project.pk).update(allowed_networks=["127.0.0.0/8"])
    vendor = {"base_url": double.url, "task_id": "x", "credentials": "v"}
    sourced(project, news={**vendor, "kind": "octoparse"})
    operator = person(project, Role.OPERATOR)
    asked = {"project": project.pk, "name": "news"}
    refused = text_of(operator.post(f"{LIST}dry-run", asked, follow=True))
    assert "The record API returned no usable response." in refused
    from tests.sources.octoparse_double import PASSWORD as SECRET
    from tests.sources.octoparse_double import TASK, USER

    Credential.objects.all().delete()
    Credential.objects.create(project=project, name="v", username=USER, password=SECRET)
    sourced(project, news={**vendor, "kind": "octoparse", "task_id": TASK})
    SourceState.objects.create(project=project, name="news", marker=269_900, last_total=270_000)
    told = text_of(operator.post(f"{LIST}dry-run", asked, follow=True))
    assert "6 batches: 500 new and 100 already imported records, of 270,500 in total" in told
    assert not Harvest.objects.exists()


def test_editors_move_the_marker(project: Project) -> None:
    editor = person(project, Role.EDITOR)
    asked = {"project": project.pk, "name": "news", "marker": "270050", "by_seed_rule": "on"}
    text = text_of(editor.post(f"{LIST}source/marker", asked, follow=True))
    assert "Marker of news moved." in text
    assert "never read: 0–49" in text
    bad = text_of(editor.post(f"{LIST}source/marker", asked | {"marker": "-1"}, follow=True))
    assert "greater than or equal to 0" in bad
    # An empty field alone does not reset the marker.
    empty = text_of(editor.post(f"{LIST}source/marker", asked | {"marker": ""}, follow=True))
    assert "Enter an offset, or select “Import everything again”." in empty
    assert SourceState.objects.get().marker == 270_050
    editor.post(f"{LIST}source/marker", asked | {"marker": "", "everything": "on"})
    assert SourceState.objects.get().marker is None


def test_a_source_shows_its_newest_harvests(
    project: Project, django_assert_max_num_queries: Any
) -> None:
    for number in range(30):
        harvest(
            project, state="completed", reason="end", ended_at=timezone.now(), batches=number + 1
        )
    viewer = person(project, Role.VIEWER)
    address = f"{LIST}source/?project={project.pk}&name=news"
    assert html_of(viewer.get(address)).count("data-harvest=") == 20
    with django_assert_max_num_queries(14):
        viewer.get(address)
    assert viewer.get(f"{LIST}source/?project={project.pk}&name=what").status_code == 404
    assert viewer.get(f"{LIST}source/?project={make_project().pk}&name=news").status_code == 404
    listed = text_of(viewer.get("/admin/sources/harvest/"))
    assert "500 = 450 + 30 + 15 + 5" in listed
    one = Harvest.objects.first()
    assert one is not None
    assert "450" in text_of(viewer.get(f"/admin/sources/harvest/{one.pk}/change/"))


def test_the_page_costs_the_same_however_many_sources(
    project: Project, django_assert_max_num_queries: Any
) -> None:
    many = {f"s-{number}": API | {"queue": "one"} for number in range(60)}
    sourced(project, **many)
    for name in many:
        SourceState.objects.create(project=project, name=name, marker=1, last_total=1)
        harvest(project, name, state="completed", reason="end", ended_at=timezone.now())
    viewer = person(project, Role.VIEWER)
    with django_assert_max_num_queries(20):
        assert html_of(viewer.get(LIST)).count("data-source=") == 60


def test_a_project_without_sources_says_where_they_come_from() -> None:
    project = make_project()
    text = text_of(person(project, Role.EDITOR).get(f"{LIST}?project={project.pk}"))
    assert "This project has no sources yet." in text


def test_secrets_are_typed_in_and_never_shown(project: Project) -> None:
    editor = person(project, Role.EDITOR)
    where = "/admin/sources/credential/"
    form = {"project": project.pk, "name": "vendor", "username": "me", "password": "s3cret-word"}
    assert editor.post(f"{where}add/", form).status_code == 302
    row = Credential.objects.get()
    assert (row.username, row.password) == ("me", "s3cret-word")
    page = html_of(editor.get(f"{where}{row.pk}/change/")) + html_of(editor.get(where))
    assert "s3cret" not in page
    assert "user name, password" in page
    assert editor.post(f"{where}{row.pk}/change/", {"token": "t0ken-word"}).status_code == 302
    row.refresh_from_db()
    assert (row.username, row.password, row.token) == ("me", "s3cret-word", "t0ken-word")
    assert "t0ken" not in str(list(AuditRecord.objects.values()))
    sourced(project, news=API | {"credentials": "vendor"})
    kept = editor.post(f"{where}{row.pk}/delete/", {"post": "yes"}, follow=True)
    assert "These credentials are in use by sources." in text_of(kept)
    sourced(project)
    assert editor.post(f"{where}{row.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not Credential.objects.exists()
