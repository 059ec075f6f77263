"""Builds and images in the admin."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.access.states import Role
from apps.projects.models import Build, Image, Project
from apps.projects.states import BuildState
from tests.access.factories import enter, make_user, page
from tests.confirmation import confirm, press
from tests.projects.build_factories import NOW, TAG, make_build, make_git_project, make_image

pytestmark = pytest.mark.django_db


def person(project: Project, role: Role = Role.OPERATOR) -> Client:
    return enter(make_user(roles={project: role}))


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("state", list(BuildState))
def test_the_page_shows_state_steps_reason_and_the_log(state: BuildState) -> None:
    steps = [
        {"step": "clone", "started_at": "2026-03-01T12:00:00+00:00", "ended_at": NOW.isoformat()},
        {"step": "build", "started_at": "2026-03-01T12:00:05+00:00", "ended_at": None},
    ]
    build = make_build(state=state, steps=steps, step="build", reason="<b>why</b>", commit="c" * 40)
    if state == BuildState.SUCCEEDED:
        make_image(project=build.project, build=build)
    text = person(build.project).get(page(Build, "change", build.pk)).content.decode()
    assert str(BuildState(state).label) in text
    assert "&lt;b&gt;why&lt;/b&gt;" in text
    assert f"/ws/logs/build:{build.pk}" in text
    cancel = reverse("admin:projects_build_cancel", args=[build.pk])
    again = reverse("admin:projects_build_rebuild", args=[build.pk])
    assert (cancel in text) == (state in (BuildState.QUEUED, BuildState.RUNNING))
    assert (again in text) == (not build.is_active)
    assert ("crawlyard/yard/news:prod-1.0" in text) == (state == BuildState.SUCCEEDED)
    live = person(build.project, Role.VIEWER).get(
        reverse("admin:projects_build_live", args=[build.pk])
    )
    assert f'data-state="{state}"' in live.content.decode()


def test_buttons_do_what_they_say() -> None:
    build = make_build(state=BuildState.RUNNING)
    client = person(build.project)
    confirm(client, reverse("admin:projects_build_cancel", args=[build.pk]))
    build.refresh_from_db()
    assert build.state == BuildState.CANCELLING
    shown = confirm(client, reverse("admin:projects_build_cancel", args=[build.pk]), follow=True)
    assert "being cancelled already" in shown.content.decode()
    ended = make_build(project=build.project, state=BuildState.FAILED, tag="prod/other/1.0")
    answer = client.post(reverse("admin:projects_build_rebuild", args=[ended.pk]))
    again = Build.objects.get(repeats=ended)
    assert answer.headers["Location"] == page(Build, "change", again.pk)
    # Pressed once more: the page of the one that is under way.
    answer = client.post(reverse("admin:projects_build_rebuild", args=[ended.pk]))
    assert answer.headers["Location"] == page(Build, "change", again.pk)


def test_a_tag_is_built_from_the_page_of_tags() -> None:
    project = make_git_project()
    client = person(project)
    address = reverse("admin:projects_build_tag", args=[project.pk])
    answer = client.post(address, {"tag": TAG})
    build = Build.objects.get()
    assert answer.headers["Location"] == page(Build, "change", build.pk)
    answer = client.post(address, {"tag": TAG})
    assert answer.headers["Location"] == page(Build, "change", build.pk)
    for tag in ("", "v1", "$(id)", "x" * 1000):
        answer = client.post(address, {"tag": tag})
        assert answer.headers["Location"] == reverse(
            "admin:projects_project_tags", args=[project.pk]
        )
    assert Build.objects.count() == 1


def test_who_may_not_is_refused() -> None:
    build = make_build(state=BuildState.RUNNING)
    addresses = [
        reverse("admin:projects_build_cancel", args=[build.pk]),
        reverse("admin:projects_build_rebuild", args=[build.pk]),
        reverse("admin:projects_build_tag", args=[build.project_id]),
    ]
    for address in addresses:
        assert person(build.project, Role.VIEWER).post(address).status_code == 403
        assert person(make_git_project()).post(address).status_code == 404
        assert person(build.project).get(address).status_code == 405
    live = reverse("admin:projects_build_live", args=[build.pk])
    assert person(make_git_project()).get(live).status_code == 404
    build.refresh_from_db()
    assert build.state == BuildState.RUNNING
    assert Build.objects.count() == 1


def test_several_are_cancelled_and_repeated_at_once() -> None:
    project = make_git_project()
    ended = make_build(project=project, state=BuildState.FAILED, tag="prod/a/1")
    waits = make_build(project=project, tag="prod/b/1")
    client = person(project)
    for name in ("cancel_selected", "rebuild_selected"):
        press(
            client,
            page(Build, "changelist"),
            {"action": name, "_selected_action": [ended.pk, waits.pk]},
            follow=True,
        )
    waits.refresh_from_db()
    assert waits.state == BuildState.CANCELLED
    assert Build.objects.filter(repeats__in=[ended, waits]).count() == 2


@pytest.mark.slow("1 s")
def test_lists_are_cheap_however_long() -> None:
    project = make_git_project()
    client = person(project, Role.VIEWER)
    counts = []
    for start in (0, 10):
        for number in range(start, start + 10):
            build = make_build(project=project, state=BuildState.SUCCEEDED, tag=f"prod/n/{number}")
            make_image(project=project, build=build, tag=str(number))
        for model in (Build, Image):
            with CaptureQueriesContext(connection) as queries:
                assert client.get(page(model, "changelist")).status_code == 200
            counts.append(len(queries))
    assert counts[:2] == counts[2:]
    assert max(counts) <= 20
    image = Image.objects.first()
    assert image is not None
    text = client.get(page(Image, "change", image.pk)).content.decode()
    assert image.digest in text
    strangers = person(make_git_project()).get(page(Image, "changelist")).content.decode()
    assert image.name not in strangers
