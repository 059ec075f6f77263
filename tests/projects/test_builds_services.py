"""What people and webhooks can ask of builds."""

from __future__ import annotations

import pytest

from apps.access.models import AuditRecord
from apps.projects.errors import (
    AlreadyBuilt,
    BuildMoveRefused,
    BuildNotActive,
    BuildsDisabled,
    BuildStillActive,
    TagNotRead,
)
from apps.projects.models import Build
from apps.projects.services import build_tag, cancel_build, queue_build, rebuild
from apps.projects.states import BUILD_FINAL, BuildState
from tests.access.factories import make_project, make_user
from tests.projects.build_factories import NOW, READING, TAG, make_build, make_git_project

pytestmark = pytest.mark.django_db


def test_a_queued_build_has_the_tag_and_its_reading() -> None:
    project = make_git_project()
    build = queue_build(
        project=project, tag=TAG, reading=READING, now=NOW, commit="c" * 40, requested_by="GitHub"
    )
    build.refresh_from_db()
    assert (build.tag, build.release, build.name, build.version) == (TAG, "prod", "news", "1.0")
    assert (build.state, build.attempt, build.requested_by) == ("queued", 1, "GitHub")
    assert build.commit == "c" * 40


def test_a_project_that_builds_nothing_refuses() -> None:
    for project in (make_git_project(builds_enabled=False), make_project()):
        with pytest.raises(BuildsDisabled):
            queue_build(project=project, tag=TAG, reading=READING, now=NOW)
    assert not Build.objects.exists()


@pytest.mark.covers("S1.4")
@pytest.mark.parametrize("state", list(BuildState))
def test_one_build_for_each_tag_unless_the_last_came_to_nothing(state: BuildState) -> None:
    first = make_build(state=state)
    if state in (BuildState.FAILED, BuildState.CANCELLED, BuildState.LOST):
        again = queue_build(project=first.project, tag=TAG, reading=READING, now=NOW)
        assert again.pk != first.pk
        return
    with pytest.raises(AlreadyBuilt) as caught:
        queue_build(project=first.project, tag=TAG, reading=READING, now=NOW)
    assert caught.value.build == first
    # The same tag of another project is another tag.
    queue_build(project=make_git_project(), tag=TAG, reading=READING, now=NOW)


@pytest.mark.parametrize("state", list(BuildState))
def test_a_rebuild_is_a_new_build_of_an_ended_one(state: BuildState) -> None:
    first, person = make_build(state=state), make_user()
    if state not in BUILD_FINAL:
        with pytest.raises(BuildStillActive):
            rebuild(build=first, now=NOW, actor=person)
        return
    again = rebuild(build=first, now=NOW, actor=person)
    assert (again.repeats, again.attempt, again.no_cache) == (first, 1, True)
    assert again.requested_by == person.username
    with pytest.raises(AlreadyBuilt):
        rebuild(build=first, now=NOW, actor=person)
    assert AuditRecord.objects.filter(action="projects.rebuild", object_id=again.pk).count() == 1


def test_a_person_builds_a_tag_that_fits() -> None:
    project, person = make_git_project(), make_user()
    build = build_tag(project=project, tag=TAG, now=NOW, actor=person)
    assert (build.name, build.requested_by) == ("news", person.username)
    assert AuditRecord.objects.get(action="projects.build_tag").project_id == project.pk
    for tag in ("v1", "$(id)", "-u", ""):
        with pytest.raises(TagNotRead):
            build_tag(project=project, tag=tag, now=NOW, actor=person)
    assert Build.objects.count() == 1


@pytest.mark.parametrize("state", list(BuildState))
def test_cancel(state: BuildState) -> None:
    build, person = make_build(state=state), make_user()
    if state in BUILD_FINAL or state == BuildState.CANCELLING:
        refusal = BuildMoveRefused if state == BuildState.CANCELLING else BuildNotActive
        with pytest.raises(refusal):
            cancel_build(build=build, now=NOW, actor=person)
        assert not AuditRecord.objects.exists()
        return
    stale = Build.objects.get(pk=build.pk)
    cancel_build(build=build, now=NOW, actor=person)
    build.refresh_from_db()
    expected = BuildState.CANCELLED if state == BuildState.QUEUED else BuildState.CANCELLING
    assert build.state == expected
    assert person.username in build.reason
    assert bool(build.ended_at) == (state == BuildState.QUEUED)
    entry = AuditRecord.objects.get(action="projects.cancel_build")
    assert (entry.before, entry.after) == ({"state": state}, {"state": expected})
    # Pressed twice: the second says why not.
    with pytest.raises((BuildMoveRefused, BuildNotActive)):
        cancel_build(build=stale, now=NOW, actor=person)
