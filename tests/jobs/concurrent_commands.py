"""Two persons, or a person and a run, at the same moment: run by test_lifecycle_on_postgres.py.

SQLite has one writer at a time, so nothing happens at the same moment there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from apps.jobs.errors import JobRunning, JobsError, MoveRefused
from apps.jobs.models import Run
from apps.jobs.services import (
    acknowledge,
    add_link,
    finish_run,
    pause_run,
    place_runs,
    restart_here,
    restart_run,
    resume_run,
    start_run,
    stop_run,
)
from apps.jobs.states import RunState
from tests.jobs.factories import NOW, make_host, make_job, make_run
from tests.runtime.processes import wait_for
from yardkit.protocol import LifecycleAnswer, RunAction

pytestmark = pytest.mark.django_db(transaction=True)

S = RunState
TIMES = 15


def together(*works: Callable[[], Any]) -> list[Any]:
    """Call all at once, each with a connection of its own; what they returned or refused."""
    barrier = threading.Barrier(len(works))
    results: list[Any] = [RuntimeError("it did not end")] * len(works)

    def run(number: int) -> None:
        try:
            barrier.wait(30)
            results[number] = works[number]()
        except JobsError as error:
            results[number] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(isinstance(result, RuntimeError) for result in results), results
    return results


def again(run: Run) -> Run:
    return Run.objects.select_related("job__project").get(pk=run.pk)


@pytest.mark.parametrize(
    ("action", "state"),
    [
        (pause_run, S.RUNNING),
        (resume_run, S.PAUSED),
        (restart_run, S.RUNNING),
        (stop_run, S.RUNNING),
        (stop_run, S.QUEUED),
    ],
)
def test_the_same_asked_twice_is_done_once(action: Callable[..., Any], state: RunState) -> None:
    for _ in range(TIMES):
        run = make_run(state=state)
        results = together(
            *(partial(action, run=again(run), now=NOW, actor=None) for _ in range(2))
        )
        assert sum(isinstance(result, JobsError) for result in results) == 1
        assert run.moves.count() == 1


def test_two_starts_of_an_idle_job_give_one_run() -> None:
    for _ in range(TIMES):
        job = make_job(overlap="skip")
        results = together(
            *(partial(start_run, job=type(job).objects.get(pk=job.pk), now=NOW, actor=None),) * 2
        )
        assert sum(isinstance(result, JobRunning) for result in results) == 1
        assert job.runs.count() == 1


def test_a_stop_and_the_second_half_of_a_restart() -> None:
    """Either it is stopped before it begins anew, or the new execution is asked to exit."""
    for _ in range(TIMES):
        run = make_run(state=S.RUNNING)
        restart_run(run=run, now=NOW, actor=None)
        begun, stopped = together(
            partial(restart_here, run=again(run), now=NOW),
            partial(stop_run, run=again(run), now=NOW, actor=None),
        )
        assert stopped is None
        run.refresh_from_db()
        assert (run.state, run.restart_wanted) == (S.STOPPING, False)
        assert run.restarts == int(begun)
        assert run.commands.last().boot == run.boot


def test_a_resume_and_the_answer_to_the_pause_before_it() -> None:
    for _ in range(TIMES):
        run = make_run(state=S.RUNNING)
        pause = pause_run(run=run, now=NOW, actor=None)
        said = LifecycleAnswer(run=run.pk, boot=run.boot, action=RunAction.PAUSE, command=pause.pk)
        _, resumed = together(
            partial(acknowledge, message=said, now=NOW),
            partial(resume_run, run=again(run), now=NOW, actor=None),
        )
        assert not isinstance(resumed, JobsError)
        run.refresh_from_db()
        assert run.state == S.RESUMING
        pause.refresh_from_db()
        assert pause.accepted


def test_a_pause_and_the_end_of_the_run() -> None:
    for _ in range(TIMES):
        run = make_run(state=S.RUNNING)
        together(
            partial(pause_run, run=again(run), now=NOW, actor=None),
            partial(finish_run, run=again(run), state=S.EXITED, reason="", now=NOW),
        )
        run.refresh_from_db()
        assert run.state == S.EXITED


def test_a_lost_run_is_retried_once_although_two_find_it() -> None:
    for _ in range(TIMES):
        run = make_run(job=make_job(retry_rules=[{"on": "lost", "retries": 5}]), state=S.RUNNING)
        results = together(
            *(
                partial(finish_run, run=again(run), state=S.LOST, reason="gone", now=NOW)
                for _ in range(3)
            )
        )
        assert sorted(results) == [False, False, True]
        assert run.retries.count() == 1


def test_a_pause_and_a_stop_leave_it_stopping() -> None:
    for _ in range(TIMES):
        run = make_run(state=S.RUNNING)
        paused, stopped = together(
            partial(pause_run, run=again(run), now=NOW, actor=None),
            partial(stop_run, run=again(run), now=NOW, actor=None),
        )
        assert stopped is None
        assert not isinstance(paused, JobsError) or isinstance(paused, MoveRefused)
        run.refresh_from_db()
        assert run.state == S.STOPPING


def test_a_start_that_replaces_a_run_and_the_end_of_that_run_do_not_block_each_other() -> None:
    rules = [{"on": "failed", "retries": 1}]
    for _ in range(TIMES):
        run = make_run(
            job=make_job(retry_rules=rules, overlap="replace"), state=S.RUNNING, host="h"
        )
        ended, started = together(
            partial(finish_run, run=again(run), state=S.FAILED, reason="", now=NOW),
            partial(start_run, job=again(run).job, now=NOW, actor=None),
        )
        assert ended
        assert isinstance(started, Run)
        assert run.job.runs.active().exists()


def test_a_heartbeat_does_not_wait_for_a_pass_over_a_long_queue() -> None:
    for name in ("host-1", "host-2"):
        make_host(name, capacity=50)
    unfit = make_job(host_labels={"gpu": "yes"})
    runs = [make_run(job=unfit if number % 2 else None) for number in range(40)]
    placing = threading.Thread(target=_place, daemon=True)
    with transaction.atomic():
        # The pass comes to a stop in the middle: it cannot note why this run waits.
        Run.objects.select_for_update().get(pk=runs[21].pk)
        placing.start()
        with _other_connection() as cursor:
            wait_for(lambda: _blocked(cursor), "a pass that waits")
            cursor.execute("SET lock_timeout = '2s'")
            cursor.execute("UPDATE jobs_host SET beat_at = beat_at")
            assert cursor.rowcount == 2
        assert Run.objects.exclude(host="").exists()
    placing.join(60)
    assert Run.objects.exclude(host="").count() == 20


def _place() -> None:
    try:
        place_runs(now=NOW)
    finally:
        connection.close()


@contextlib.contextmanager
def _other_connection() -> Iterator[Any]:
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            yield cursor
    finally:
        other.close()


def _blocked(cursor: Any) -> bool:
    cursor.execute(
        "SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE NOT granted AND datname = current_database()"
    )
    return cursor.fetchone() is not None


def test_ends_with_followers_and_a_start_that_replaces_do_not_block_each_other() -> None:
    """The follower replaces too, has followers of its own, and one of its runs ends as well."""
    rules = [{"on": "failed", "retries": 1}]
    for _ in range(TIMES):
        before = make_job()
        job = make_job(overlap="replace", retry_rules=rules)
        last = make_job(overlap="replace")
        for follower, after in ((job, before), (last, job), (last, before)):
            add_link(job=follower, after=after, condition="always", actor=None)
        cause = make_run(job=before, state=S.RUNNING)
        running = make_run(job=job, state=S.RUNNING)
        make_run(job=job, waits_for=running)
        make_run(job=last, state=S.RUNNING)
        ended, failed, started = together(
            partial(finish_run, run=again(cause), state=S.EXITED, reason="", now=NOW),
            partial(finish_run, run=again(running), state=S.FAILED, reason="", now=NOW),
            partial(start_run, job=type(job).objects.get(pk=job.pk), now=NOW, actor=None),
        )
        assert ended
        assert failed
        assert isinstance(started, Run)
        # Each of the two took the place of all that were before it.
        assert job.runs.filter(state=S.QUEUED, retry_of=None).count() == 1
        assert cause.caused.count() == 2
