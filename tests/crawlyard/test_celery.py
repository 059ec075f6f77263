"""run_worker and run_beat as real processes, on files and on RabbitMQ."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.e2e.daemon_processes import Daemons
from tests.plugins.markers import BROKER_URL
from tests.plugins.measurements import Measured
from tests.plugins.stores import rabbitmqctl
from yardkit.liveness import FEED_SECONDS, FILE_SETTING

# A busy machine takes its time to start a process, and each test starts some.
pytestmark = [pytest.mark.slow("workers and beats as processes"), pytest.mark.timeout(600)]
PATIENCE_SECONDS = 200.0

# A job that was due at this minute, and the wake-up that says so.
WAKE = """
from datetime import timedelta
from django.utils import timezone
from apps.jobs.models import Job, Schedule
from apps.jobs.services import sync_schedule
from apps.projects.models import Project
from apps.runtime.deferral import defer, stop_deferring
project, _made = Project.objects.get_or_create(slug="p", defaults={"name": "P"})
now = timezone.now()
job = Job.objects.create(project=project, name=str(now), spider="a:B", cron="* * * * *")
sync_schedule(job=job, now=now - timedelta(minutes=2))
Schedule.objects.filter(job=job).update(next_at=now - timedelta(minutes=1))
defer("jobs.plan", queue="celery.tasks", job=job.pk, of_a_later_version=1)
stop_deferring(30)
print(job.pk)
"""
# A job that is due and of which nobody is told.
DUE = WAKE.replace('defer("jobs.plan"', 'str("").format("jobs.plan"')


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    started = Daemons(tmp_path)
    started.migrate()
    yield started
    started.end()


def rows(daemons: Daemons, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(daemons.folder / "data" / "crawlyard.sqlite3", timeout=30) as connection:
        return list(connection.execute(query))


def until(daemons: Daemons, condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            logs = {name: daemons.log(name)[-2000:] for name in daemons.processes}
            pytest.fail(f"never happened: {what}; {logs}")
        time.sleep(0.1)


def planned(daemons: Daemons) -> int:
    (count,) = rows(daemons, "SELECT count(*) FROM jobs_plannedrun")[0]
    return int(count)


def account(made_at: datetime, through: datetime, times: Sequence[datetime]) -> dict[str, int]:
    """For ``measured``, of a job that ``WAKE`` has made: what was due each minute until now.

    Those of it without a row are lost, rows too many are there twice.
    """
    minute = (made_at - timedelta(minutes=2)).replace(second=0, microsecond=0)
    due = set()
    while (minute := minute + timedelta(minutes=1)) <= through:
        due.add(minute)
    return {"of": len(due), "lost": len(due - {*times}), "twice": len(times) - len({*times})}


def account_of(daemons: Daemons) -> dict[str, int]:
    """``account`` of the one job that there is."""
    found = rows(
        daemons,
        "SELECT j.name, s.planned_through, p.planned_at FROM jobs_plannedrun p"
        " JOIN jobs_schedule s ON s.id = p.schedule_id JOIN jobs_job j ON j.id = s.job_id",
    )
    made_at, through = map(datetime.fromisoformat, found[0][:2])
    times = [datetime.fromisoformat(row[2]) for row in found]
    return account(made_at.replace(tzinfo=None), through, times)


def is_planned(daemons: Daemons) -> bool:
    """Whether no job is due any more."""
    return bool(rows(daemons, "SELECT 1 FROM jobs_schedule WHERE next_at > datetime('now')"))


def ready(daemons: Daemons, kind: str) -> bool:
    found = rows(daemons, f"SELECT state FROM runtime_daemon WHERE kind = '{kind}'")  # noqa: S608
    return ("running",) in found


def test_a_worker_runs_tasks_from_files_and_stops_in_time(daemons: Daemons) -> None:
    daemons.start("worker", "run_worker", "--concurrency", "1")
    until(daemons, lambda: ready(daemons, "worker"), "the worker is there")
    daemons.manage("shell", "-c", WAKE)
    until(daemons, lambda: planned(daemons) > 0, "the task was run")
    status, _seconds = daemons.stop("worker", signal.SIGTERM)
    assert status == 0
    assert rows(daemons, "SELECT state FROM runtime_daemon WHERE kind = 'worker'") == [("stopped",)]
    assert "Traceback" not in daemons.log("worker")


def test_beat_finds_a_worker_and_has_it_sweep(daemons: Daemons) -> None:
    daemons.manage("shell", "-c", DUE)
    daemons.start("beat", "run_beat")
    daemons.start("worker", "run_worker")
    # Nobody was told that the job is due: the sweep finds it, after ten seconds at most.
    until(daemons, lambda: planned(daemons) > 0, "the sweep has planned")
    tasks = rows(daemons, "SELECT task FROM django_celery_beat_periodictask ORDER BY task")
    assert ("jobs.sweep_schedules",) in tasks
    assert ("jobs.plan",) in tasks
    for name in ("beat", "worker"):
        status, _seconds = daemons.stop(name, signal.SIGTERM)
        assert status == 0
        assert "Traceback" not in daemons.log(name)


@pytest.mark.fault
def test_a_second_beat_takes_over_from_a_killed_one(daemons: Daemons, measured: Measured) -> None:
    daemons.start("first", "run_beat", "--name", "first")
    daemons.until_logged("first", "this beat leads", PATIENCE_SECONDS)
    daemons.start("second", "run_beat", "--name", "second")
    daemons.until_logged("second", "stands by", PATIENCE_SECONDS)
    daemons.stop("first", signal.SIGKILL)
    killed_at = time.monotonic()
    daemons.until_logged("second", "this beat leads", PATIENCE_SECONDS)
    measured(back_s=time.monotonic() - killed_at)
    # One that stops gives the lease back at once.
    daemons.start("third", "run_beat", "--name", "third")
    daemons.until_logged("third", "stands by", PATIENCE_SECONDS)
    assert daemons.stop("second", signal.SIGTERM)[0] == 0
    daemons.until_logged("third", "this beat leads", PATIENCE_SECONDS)


@pytest.mark.fault
def test_a_beat_killed_as_it_begins_to_send_is_followed_and_nothing_is_planned_twice(
    daemons: Daemons, measured: Measured
) -> None:
    daemons.manage("shell", "-c", DUE)
    daemons.start("worker", "run_worker")
    daemons.start("first", "run_beat", "--name", "first", FAILPOINTS="beat.tick=kill@2")
    assert daemons.processes["first"].wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert "this beat leads" in daemons.log("first")
    daemons.start("second", "run_beat", "--name", "second")
    back_at = time.monotonic()
    daemons.until_logged("second", "this beat leads", PATIENCE_SECONDS)
    until(daemons, lambda: planned(daemons) > 0, "the sweep has planned")
    measured(**account_of(daemons), back_s=time.monotonic() - back_at)
    times = rows(daemons, "SELECT count(*), count(DISTINCT planned_at) FROM jobs_plannedrun")
    assert times[0][0] == times[0][1]


@pytest.mark.fault
@pytest.mark.long("a beat killed there")
@pytest.mark.parametrize("action", ["stop:12", "raise"])
def test_a_beat_frozen_or_failing_as_it_begins_to_send_plans_nothing_twice(
    daemons: Daemons, action: str, measured: Measured
) -> None:
    daemons.manage("shell", "-c", DUE)
    daemons.start("worker", "run_worker")
    failpoint = f"beat.tick={action}@2"
    daemons.start("first", "run_beat", "--name", "first", FAILPOINTS=failpoint)
    daemons.until_logged("first", "this beat leads", PATIENCE_SECONDS)
    daemons.start("second", "run_beat", "--name", "second")
    daemons.until_met("first", failpoint, PATIENCE_SECONDS)
    if action != "raise":
        # Its lease was over before it woke.
        daemons.until_logged("second", "this beat leads", PATIENCE_SECONDS)
        daemons.until_logged("first", "another one leads", PATIENCE_SECONDS)
    until(daemons, lambda: planned(daemons) > 0, "the sweep has planned")
    found = account_of(daemons)
    measured(**found)
    assert (found["lost"], found["twice"]) == (0, 0)
    for name in ("first", "second"):
        assert daemons.processes[name].poll() is None, daemons.log(name)


@pytest.mark.fault
@pytest.mark.long("a worker killed there")
@pytest.mark.parametrize("action", ["stop:3", "raise"])
@pytest.mark.parametrize("point", ["jobs.plan.before_commit", "jobs.plan.after_commit"])
def test_a_worker_frozen_or_failing_while_it_plans(
    daemons: Daemons, point: str, action: str, measured: Measured
) -> None:
    failpoint = f"{point}={action}@1"
    daemons.start("worker", "run_worker", FAILPOINTS=failpoint)
    until(daemons, lambda: ready(daemons, "worker"), "the worker is there")
    # Not waited for: it stands still for no longer than a command takes to end.
    daemons.start("wake", "shell", "-c", WAKE)
    daemons.until_met("worker", failpoint, PATIENCE_SECONDS)
    until(daemons, lambda: is_planned(daemons), "it is planned, or parked")
    if not planned(daemons):
        # What fails is parked for an hour; nothing of what was due meanwhile is forgotten.
        assert (point, action) == ("jobs.plan.before_commit", "raise")
        rows(daemons, "UPDATE jobs_schedule SET next_at = datetime('now')")
        daemons.start("beat", "run_beat")
        until(daemons, lambda: planned(daemons), "the sweep has planned")
    found = account_of(daemons)
    measured(**found)
    assert found["of"] >= 2
    assert (found["lost"], found["twice"]) == (0, 0)


@pytest.mark.fault
@pytest.mark.parametrize(
    ("point", "before"), [("jobs.plan.before_commit", 0), ("jobs.plan.after_commit", 2)]
)
def test_a_worker_killed_while_it_plans(
    daemons: Daemons, point: str, before: int, measured: Measured
) -> None:
    daemons.start("worker", "run_worker", FAILPOINTS=f"{point}=kill@1")
    until(daemons, lambda: ready(daemons, "worker"), "the worker is there")
    daemons.manage("shell", "-c", WAKE)
    assert daemons.processes["worker"].wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert planned(daemons) >= before
    assert bool(planned(daemons)) == bool(before)
    # The message is gone with it: the next worker hears of the job from the sweep.
    daemons.start("beat", "run_beat")
    daemons.start("second", "run_worker")
    back_at = time.monotonic()
    until(daemons, lambda: is_planned(daemons), "the sweep has planned")
    # Where it had committed, nothing was left to do.
    back_s = None if before else time.monotonic() - back_at
    measured(**account_of(daemons), back_s=back_s)
    times = rows(daemons, "SELECT count(*), count(DISTINCT planned_at) FROM jobs_plannedrun")
    assert times[0][0] == times[0][1] >= 2
    (runs, linked) = rows(
        daemons, "SELECT (SELECT count(*) FROM jobs_run), count(run_id) FROM jobs_plannedrun"
    )[0]
    assert runs == linked


@pytest.mark.services
def test_on_rabbitmq_nothing_is_left_behind_but_durable_queues(
    daemons: Daemons, rabbit_vhost: str
) -> None:
    daemons.environment["BROKER_URL"] = rabbit_vhost
    daemons.start("worker", "run_worker", "--queues", "celery.tasks")
    until(daemons, lambda: ready(daemons, "worker"), "the worker is there")
    daemons.manage("shell", "-c", WAKE)
    until(daemons, lambda: planned(daemons) > 0, "the task was run")
    vhost = unquote(urlsplit(rabbit_vhost).path[1:]) or "/"
    listed = subprocess.run(
        ["rabbitmqctl", "-q", "list_queues", "-p", vhost, "name", "durable", "exclusive"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        queues = [line.split() for line in listed.stdout.splitlines()[1:]]
        assert ["celery.tasks", "true", "false"] in queues
        assert not [name for name, _durable, exclusive in queues if exclusive == "true"]
        assert not [name for name, _durable, _exclusive in queues if "pidbox" in name]
    status, _seconds = daemons.stop("worker", signal.SIGTERM)
    assert status == 0
    assert "guest:guest" not in daemons.log("worker")


@pytest.mark.services
def test_a_worker_whose_consumer_is_refused_gives_no_sign_of_life(tmp_path: Path) -> None:
    name = f"crawlyard_test_quorum_{tmp_path.parent.name}_{tmp_path.name}"
    # Celery's consumer asks for what quorum queues do not have.
    rabbitmqctl("add_vhost", name, "--default-queue-type", "quorum")
    try:
        rabbitmqctl("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        daemons = Daemons(tmp_path, BROKER_URL=urlsplit(BROKER_URL)._replace(path=name).geturl())
        daemons.migrate()
        file = tmp_path / "life.json"
        daemons.start("worker", "run_worker", **{FILE_SETTING: str(file)})
        daemons.until_logged("worker", "the consumer began")
        before = file.read_text() if file.exists() else ""
        time.sleep(2 * FEED_SECONDS + 1)
        assert (file.read_text() if file.exists() else "") == before
        daemons.end()
    finally:
        rabbitmqctl("delete_vhost", name)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run_worker", "--queues", "celery.nothing"], "--queues"),
        (["run_worker", "--concurrency", "0"], "--concurrency"),
        (["run_worker", "--once"], "--once"),
    ],
)
def test_a_wrong_argument_is_one_line(daemons: Daemons, arguments: list[str], words: str) -> None:
    refused = daemons.manage(*arguments, status=2)
    (line,) = refused.stderr.splitlines()
    assert words in line
