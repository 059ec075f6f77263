"""Starting, claiming, stopping and finishing runs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.db.models import QuerySet

from apps.access.models import AuditRecord
from apps.jobs.errors import JobDisabled, MoveRefused, RunNotActive
from apps.jobs.models import Run
from apps.jobs.services import (
    WATCH_LEASE_SECONDS,
    claim_runs,
    finish_run,
    mark_running,
    reap_lost_runs,
    reap_when_steady,
    start_run,
    stop_run,
    watch_runs,
)
from apps.jobs.states import RunState
from apps.runtime.models import OutboxMessage
from tests.jobs.factories import NOW, make_job, make_run
from yardkit.protocol import RunQueued, decode

pytestmark = pytest.mark.django_db


def moves(run: Run) -> list[str]:
    return [str(move.to_state) for move in run.moves.all()]


def test_start_run_queues_it_and_leaves_a_wake_up_in_the_outbox() -> None:
    job = make_job(arguments={"url": "http://a.example/", "depth": 2})
    run = start_run(job=job, now=NOW, actor=None, arguments={"depth": 3})
    assert run.state == RunState.QUEUED
    assert run.arguments == {"url": "http://a.example/", "depth": 3}
    message = OutboxMessage.objects.get(key="runners")
    assert decode(bytes(message.body)) == RunQueued(run=run.pk)
    assert AuditRecord.objects.get(action="jobs.start_run").object_id == str(run.pk)
    assert moves(run) == ["queued"]


def test_a_disabled_job_is_refused_and_nothing_is_written() -> None:
    job = make_job(enabled=False, name="idle")
    with pytest.raises(JobDisabled, match="idle"):
        start_run(job=job, now=NOW, actor=None)
    assert not Run.objects.exists()
    assert not OutboxMessage.objects.exists()


def test_a_run_is_claimed_once_oldest_first_up_to_the_limit() -> None:
    job = make_job()
    first, second, third = (make_run(job=job, host="one") for _ in range(3))
    assert claim_runs(host="two", limit=2, now=NOW) == []
    assert claim_runs(host="one", limit=2, now=NOW) == [first, second]
    assert claim_runs(host="one", limit=2, now=NOW) == [third]
    assert claim_runs(host="one", limit=2, now=NOW) == []
    first.refresh_from_db()
    assert (first.state, first.host) == (RunState.STARTING, "one")
    assert first.boot


def test_the_life_of_a_run_is_on_its_timeline() -> None:
    make_run(host="one")
    (run,) = claim_runs(host="one", limit=1, now=NOW)
    assert mark_running(run=run, pid=5, process_started=1.5, now=NOW)
    assert finish_run(run=run, state=RunState.EXITED, reason="", now=NOW, exit_code=0)
    assert moves(run) == ["starting", "running", "exited"]
    run.refresh_from_db()
    assert (run.exit_code, run.pid, run.ended_at) == (0, None, NOW)


def test_a_final_state_is_never_left() -> None:
    run = make_run(state=RunState.FAILED)
    assert not finish_run(run=run, state=RunState.EXITED, reason="", now=NOW)
    assert not mark_running(run=run, pid=5, process_started=1.5, now=NOW)
    with pytest.raises(RunNotActive):
        stop_run(run=run, now=NOW, actor=None)
    run.refresh_from_db()
    assert run.state == RunState.FAILED


def test_stopping_a_queued_run_cancels_it_at_once() -> None:
    run = make_run()
    stop_run(run=run, now=NOW, actor=None)
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED
    assert claim_runs(host="one", limit=1, now=NOW) == []


def test_stopping_a_running_run_asks_its_runner_once() -> None:
    run = make_run(state=RunState.RUNNING)
    stop_run(run=run, now=NOW, actor=None)
    with pytest.raises(MoveRefused):
        stop_run(run=run, now=NOW, actor=None)
    record = AuditRecord.objects.get(action="jobs.stop_run")
    assert (record.before, record.after) == ({"state": "running"}, {"state": "stopping"})


def test_a_stale_object_cannot_undo_a_faster_move() -> None:
    run = make_run(state=RunState.RUNNING)
    stale = Run.objects.get(pk=run.pk)
    finish_run(run=run, state=RunState.EXITED, reason="", now=NOW)
    assert not finish_run(run=stale, state=RunState.FAILED, reason="late", now=NOW)
    run.refresh_from_db()
    assert (run.state, run.reason) == (RunState.EXITED, "")


def test_a_finish_that_races_with_a_stop_still_counts() -> None:
    run = make_run(state=RunState.RUNNING)
    stale = Run.objects.get(pk=run.pk)
    stop_run(run=run, now=NOW, actor=None)
    assert finish_run(run=stale, state=RunState.CANCELLED, reason="stopped", now=NOW)


def test_runs_of_a_silent_host_are_lost_those_of_a_watching_one_are_not() -> None:
    silent = make_run(state=RunState.RUNNING, host="silent")
    watched = make_run(state=RunState.RUNNING, host="awake")
    later = NOW + timedelta(seconds=WATCH_LEASE_SECONDS + 1)
    assert watch_runs(host="awake", now=later) == 1
    assert reap_lost_runs(now=later) == 1
    silent.refresh_from_db()
    watched.refresh_from_db()
    assert (silent.state, watched.state) == (RunState.LOST, RunState.RUNNING)
    assert "silent" in silent.reason


def test_a_host_that_reports_while_it_is_judged_keeps_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = make_run(state=RunState.RUNNING)
    later = NOW + timedelta(seconds=WATCH_LEASE_SECONDS + 1)
    judged = Run.objects.filter(pk=run.pk)

    def stale(_rows: object, **_options: object) -> QuerySet[Run]:
        assert len(judged) == 1  # read here, before the host reports
        watch_runs(host=run.host, now=later)
        return judged

    monkeypatch.setattr("apps.jobs.querysets.RunQuerySet.stale", stale)
    monkeypatch.setattr(judged, "select_related", lambda *_names: judged)
    assert reap_lost_runs(now=later) == 0
    run.refresh_from_db()
    assert (run.state, run.watched_at) == (RunState.RUNNING, later)


def round_at(seconds: float) -> None:
    """One round of the housekeeping, so many seconds after NOW."""
    reap_when_steady(now=NOW + timedelta(seconds=seconds))


def test_without_any_runner_the_housekeeping_finds_what_is_lost() -> None:
    run = make_run(state=RunState.RUNNING, host="last")
    seen = []
    for seconds in range(0, 121, 15):
        round_at(seconds)
        run.refresh_from_db()
        seen.append(str(run.state))
    # Not before it has had its whole time while the database could be written.
    assert seen == ["running"] * 7 + ["lost"] * 2
    assert "last" in run.reason
    assert "housekeeping: jobs.reap_lost_runs" in settings.CELERY_BEAT_SCHEDULE


def test_after_an_outage_of_the_database_hosts_get_their_time_anew() -> None:
    run = make_run(state=RunState.RUNNING, host="cut-off")
    for seconds in range(0, 31, 15):
        round_at(seconds)
    for seconds in (1000, 1015, 1030, 1045, 1060, 1075):
        round_at(seconds)
    run.refresh_from_db()
    assert run.state == RunState.RUNNING
    watch_runs(host="cut-off", now=NOW + timedelta(seconds=1080))
    round_at(1090)
    run.refresh_from_db()
    assert run.state == RunState.RUNNING
