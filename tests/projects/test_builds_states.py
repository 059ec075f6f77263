"""Builds as workers and the sweep move them, without any engine."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import InterfaceError

from apps.projects.engine.builder import BuiltImage
from apps.projects.engine.builder.control import BuildControl
from apps.projects.engine.tags import image_name
from apps.projects.models import Build, Image
from apps.projects.services import cancel_build, rebuild
from apps.projects.services.build_moves import move_build
from apps.projects.services.build_states import (
    LEASE_SECONDS,
    MAX_ATTEMPTS,
    WAKE_SECONDS,
    beat_build,
    claim_build,
    end_build,
    enter_step,
    leave_builds,
    note_commit,
    reap_builds,
    state_of_build,
    succeed_build,
    wake_builds,
)
from apps.projects.services.build_worker import _BuildHeartbeat, leaving, work_on_build
from apps.projects.states import BUILD_FINAL, BUILD_MOVES, BuildState, BuildStep
from apps.projects.tasks import build, sweep_builds
from tests.access.factories import make_user
from tests.plugins.measurements import Measured
from tests.projects.build_factories import NOW, READING, make_build
from tests.runtime.processes import wait_for
from yardkit import topology

pytestmark = pytest.mark.django_db

BUILT = BuiltImage("sha256:" + "a" * 64, 1234, {"crawlyard.build": "1"}, "c" * 40)
LATER = NOW + timedelta(seconds=LEASE_SECONDS + 1)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Tasks deferred, as soon as they are."""
    found: list[tuple[str, dict[str, Any]]] = []

    def defer(name: str, *, queue: str, **arguments: Any) -> None:
        assert queue == topology.BUILDS
        found.append((name, arguments))

    for module in ("builds", "build_states", "build_worker"):
        monkeypatch.setattr(f"apps.projects.services.{module}.defer", defer)
    return found


def claimed(**fields: Any) -> Build:
    found = claim_build(build_id=make_build(**fields).pk, worker="w1", now=NOW)
    assert found is not None
    return found


def succeed(row: Build, built: BuiltImage = BUILT) -> Image | None:
    name = image_name(row.project.slug, READING)
    return succeed_build(build=row, image=name, built=built, now=NOW)


@pytest.mark.parametrize("state", list(BuildState))
@pytest.mark.parametrize("to", list(BuildState))
def test_only_the_moves_of_the_table_are_made(state: BuildState, to: BuildState) -> None:
    row = make_build(state=state)
    assert move_build(row, to, now=NOW) == (state in BUILD_MOVES[to])
    row.refresh_from_db()
    assert row.state == (to if state in BUILD_MOVES[to] else state)
    assert (row.ended_at is not None) == (row.state in BUILD_FINAL)


def test_a_build_is_claimed_once() -> None:
    row = make_build()
    first = claim_build(build_id=row.pk, worker="w1", now=NOW)
    assert first is not None
    assert (first.state, first.worker, first.beat_at) == (BuildState.RUNNING, "w1", NOW)
    assert claim_build(build_id=row.pk, worker="w2", now=NOW) is None
    assert claim_build(build_id=row.pk + 1, worker="w2", now=NOW) is None


@pytest.mark.parametrize("state", [state for state in BuildState if state != BuildState.QUEUED])
def test_what_does_not_wait_is_not_claimed(state: BuildState) -> None:
    assert claim_build(build_id=make_build(state=state).pk, worker="w2", now=NOW) is None


def test_steps_have_their_times() -> None:
    row = claimed()
    for number, step in enumerate((BuildStep.CLONE, BuildStep.PREPARE)):
        assert enter_step(build=row, step=step, now=NOW + timedelta(seconds=number))
    assert note_commit(build=row, commit="c" * 40)
    assert end_build(build=row, state=BuildState.FAILED, reason="x", now=NOW + timedelta(seconds=5))
    row.refresh_from_db()
    assert [each["step"] for each in row.steps] == ["clone", "prepare"]
    assert row.steps[0]["ended_at"] == row.steps[1]["started_at"]
    assert row.steps[1]["ended_at"] == row.ended_at.isoformat()
    assert (row.step, row.reason, row.commit) == ("prepare", "x", "c" * 40)


@pytest.mark.covers("S1.4")
def test_an_image_is_there_only_once_its_build_has_succeeded() -> None:
    row = claimed()
    assert not Image.objects.exists()
    image = succeed(row)
    assert image is not None
    assert (image.build, image.digest, image.commit) == (row, BUILT.digest, BUILT.commit)
    assert image.reference == f"crawlyard/{row.project.slug}/news:prod-1.0"
    row.refresh_from_db()
    assert row.state == BuildState.SUCCEEDED
    for state in (BuildState.FAILED, BuildState.CANCELLED):
        failing = claimed(tag=f"prod/{state}/1.0")
        assert end_build(build=failing, state=state, reason="no", now=NOW)
        assert succeed(failing) is None
    assert Image.objects.count() == 1


def test_a_rebuild_gives_the_image_a_new_digest() -> None:
    first = claimed()
    image = succeed(first)
    assert image is not None
    again = rebuild(build=first, now=NOW, actor=make_user())
    second = claim_build(build_id=again.pk, worker="w1", now=NOW)
    assert second is not None
    image.refresh_from_db()
    assert image.build == first
    other = BuiltImage("sha256:" + "b" * 64, 99, {}, "d" * 40)
    assert succeed(second, other) == image
    image.refresh_from_db()
    assert (image.build, image.digest, image.size_bytes) == (second, other.digest, 99)


def test_a_cancel_at_the_last_moment_leaves_no_image() -> None:
    row = claimed()
    cancel_build(build=Build.objects.get(pk=row.pk), now=NOW, actor=make_user())
    assert state_of_build(build=row) == BuildState.CANCELLING
    assert succeed(row) is None
    assert not Image.objects.exists()
    assert end_build(build=row, state=BuildState.CANCELLED, reason="", now=NOW)
    row.refresh_from_db()
    assert row.reason.startswith("cancelled by")


def test_a_late_worker_can_do_nothing_more() -> None:
    late = claimed()
    Build.objects.filter(pk=late.pk).update(boot="b2", worker="w2")
    assert not beat_build(build=late, now=LATER)
    assert state_of_build(build=late) is None
    assert not enter_step(build=late, step=BuildStep.BUILD, now=LATER)
    assert not note_commit(build=late, commit="e" * 40)
    assert not end_build(build=late, state=BuildState.FAILED, reason="x", now=LATER)
    assert succeed(late) is None
    row = Build.objects.get(pk=late.pk)
    assert (row.state, row.commit, row.step) == (BuildState.RUNNING, "", "")


def test_a_silent_worker_loses_its_build_which_is_tried_once_more(
    sent: list[tuple[str, dict[str, Any]]],
) -> None:
    first = claimed(commit="c" * 40, requested_by="GitHub")
    assert reap_builds(now=NOW + timedelta(seconds=LEASE_SECONDS)) == 0
    assert reap_builds(now=LATER) == 1
    assert reap_builds(now=LATER) == 0
    first.refresh_from_db()
    assert first.state == BuildState.LOST
    assert "w1" in first.reason
    second = Build.objects.get(repeats=first)
    assert (second.state, second.attempt, second.commit) == ("queued", 2, "c" * 40)
    assert second.requested_by == "GitHub"
    assert sent == [("projects.build", {"build": second.pk})]
    assert claim_build(build_id=second.pk, worker="w2", now=LATER) is not None
    assert reap_builds(now=LATER + timedelta(seconds=LEASE_SECONDS + 1)) == 1
    assert Build.objects.count() == 2
    # The first worker wakes up: it is too late.
    assert succeed(first) is None
    assert not Image.objects.exists()


def test_a_worker_that_leaves_begins_no_build_and_passes_it_on(
    sent: list[tuple[str, dict[str, Any]]],
) -> None:
    row = make_build()
    leaving.set()
    try:
        assert work_on_build(build_id=row.pk, worker="w1") is None
    finally:
        leaving.clear()
    row.refresh_from_db()
    assert row.state == BuildState.QUEUED
    assert sent[-1] == ("projects.build", {"build": row.pk})


def test_a_stopped_worker_leaves_its_build_to_the_next_without_a_failed_attempt(
    sent: list[tuple[str, dict[str, Any]]],
) -> None:
    first = claimed()
    assert leave_builds(worker="somebody else", now=LATER) == 0
    for count in range(1, MAX_ATTEMPTS + 3):
        assert leave_builds(worker="w1", now=LATER) == 1
        assert leave_builds(worker="w1", now=LATER) == 0
        again = Build.objects.latest("pk")
        assert (again.state, again.attempt) == (BuildState.QUEUED, 1)
        assert sent[-1] == ("projects.build", {"build": again.pk})
        assert len(sent) == count
        assert claim_build(build_id=again.pk, worker="w1", now=LATER) is not None
    first.refresh_from_db()
    assert first.state == BuildState.LOST
    assert "w1 was stopped" in first.reason


def test_a_worker_that_beats_keeps_its_build() -> None:
    row = claimed()
    assert beat_build(build=row, now=LATER)
    assert reap_builds(now=LATER) == 0


def test_a_cancelled_build_of_a_dead_worker_is_not_tried_again() -> None:
    row = claimed()
    cancel_build(build=row, now=NOW, actor=make_user())
    assert reap_builds(now=LATER) == 1
    row.refresh_from_db()
    assert row.state == BuildState.LOST
    assert Build.objects.count() == 1


def test_a_project_that_builds_no_more_gets_no_second_try() -> None:
    row = claimed()
    row.project.builds_enabled = False
    row.project.save(update_fields=["builds_enabled"])
    assert reap_builds(now=LATER) == 1
    assert Build.objects.count() == 1


@pytest.mark.slow("3 s")
def test_who_waits_is_called_again_ever_less_often(sent: list[tuple[str, dict[str, Any]]]) -> None:
    row = make_build()
    assert wake_builds(now=NOW + timedelta(seconds=WAKE_SECONDS)) == 0
    calls = [
        minute for minute in range(1, 24 * 60) if wake_builds(now=NOW + timedelta(minutes=minute))
    ]
    assert calls[0] == 1
    assert 5 < len(calls) < 20
    assert sent == [("projects.build", {"build": row.pk})] * len(calls)
    # Calling it again is no claim: it can be taken, and be lost again, as ever.
    assert claim_build(build_id=row.pk, worker="w1", now=NOW) is not None
    assert wake_builds(now=NOW + timedelta(days=3)) == 0


def test_the_tasks_bear_what_they_do_not_know(sent: list[tuple[str, dict[str, Any]]]) -> None:
    assert (build.name, sweep_builds.name) == ("projects.build", "projects.sweep_builds")
    row = make_build(state=BuildState.SUCCEEDED)
    build(build=row.pk, new_option=1)
    build(build=row.pk + 100)
    lost = claimed(tag="prod/other/1.0")
    Build.objects.filter(pk=lost.pk).update(beat_at=NOW - timedelta(days=1))
    sweep_builds(new_option=1)
    assert len(sent) == 1
    assert "housekeeping: projects.sweep_builds" in settings.CELERY_BEAT_SCHEDULE


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("error", [InterfaceError("closed"), RuntimeError("unforeseen")])
@pytest.mark.django_db(transaction=True)
def test_a_failing_beat_is_repeated(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr("apps.projects.services.build_worker.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("apps.projects.services.build_worker.BEAT_SECONDS", 0.0)
    errors = [error]

    def fails_once() -> datetime:
        if errors:
            raise errors.pop()
        return LATER

    monkeypatch.setattr("apps.projects.services.build_worker.database_now", fails_once)
    row = claimed()
    beat = _BuildHeartbeat(row, BuildControl(limit_seconds=60))
    beat.start()
    try:
        wait_for(lambda: Build.objects.get(pk=row.pk).beat_at == LATER, "the next beat")
    finally:
        beat.stop()
    assert errors == []


@pytest.mark.fault
def test_leases_are_judged_by_the_databases_clock_whatever_the_worker_s_own_says(
    monkeypatch: pytest.MonkeyPatch, sent: list[tuple[str, dict[str, Any]]], measured: Measured
) -> None:
    # The database says LATER; this process's clock is a day ahead.
    monkeypatch.setattr("apps.projects.tasks.database_now", lambda: LATER)
    monkeypatch.setattr("apps.projects.services.build_worker.database_now", lambda: LATER)
    monkeypatch.setattr("django.utils.timezone.now", lambda: LATER + timedelta(days=1))
    row = claimed()
    beat = _BuildHeartbeat(row, BuildControl(limit_seconds=60))
    beat._look()
    row.refresh_from_db()
    assert row.beat_at == LATER
    sweep_builds()
    row.refresh_from_db()
    measured(of=1, lost=int(row.state == BuildState.LOST), twice=len(sent))
    assert row.state == BuildState.RUNNING
    assert sent == []
