"""The runner when it is killed, or the world around it fails: no run is lost, none runs twice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from django.db import DatabaseError
from django.utils import timezone

from apps.jobs.daemon import RunnerDaemon
from apps.jobs.models import Run
from apps.jobs.runners.outputs import read_exit
from apps.jobs.services import claim_runs, finish_run, place_runs, stop_run
from apps.jobs.states import RunState
from tests.jobs.factories import make_run
from tests.jobs.runners import make_runner, start, until
from tests.outages import tables_away
from yardkit import failpoints
from yardkit.broker import Broker
from yardkit.failpoints import FailpointError
from yardkit.stop import Stop

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault]


@pytest.fixture
def failing() -> Iterator[None]:
    yield
    failpoints.configure({})


@pytest.fixture(autouse=True)
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The spiders here do not listen, and need not be waited for."""
    for name in ("STOP_GRACE_SECONDS", "SHUTDOWN_GRACE_SECONDS"):
        monkeypatch.setattr(f"apps.jobs.daemon.intervals.{name}", 0.3)


def processes(run: Run) -> list[psutil.Process]:
    """What runs of a run on this machine."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("CRAWLYARD_BOOT") == run.boot and process.is_running():
                found.append(process)
    return [one for one in found if one.status() != psutil.STATUS_ZOMBIE]


def running(daemon: RunnerDaemon, spider: str = "sleeps") -> Run:
    run = start(spider)
    until(daemon, run, lambda: run.state == RunState.RUNNING)
    return run


def reap(daemon: RunnerDaemon) -> None:
    """A runner that was killed leaves zombies to this very process only."""
    for handle in daemon.handles.values():
        if handle.process is not None:
            handle.process.kill()
            handle.process.wait()


def test_an_end_that_comes_while_the_database_is_away_is_written_down_later(
    runner: RunnerDaemon,
) -> None:
    run = running(runner)
    with tables_away("jobs_run"):
        os.kill(run.pid or 0, 9)
        for _ in range(3):
            with pytest.raises(DatabaseError):
                runner.step()
    until(runner, run, lambda: run.state == RunState.FAILED)
    assert "killed by signal 9" in run.reason


def test_a_start_that_cannot_be_written_down_at_once_is_no_second_start(
    runner: RunnerDaemon, failing: None
) -> None:
    failpoints.configure({"FAILPOINTS": "jobs.started=raise@1"})
    run = start("sleeps")
    with pytest.raises(FailpointError):
        until(runner, run, lambda: False)
    until(runner, run, lambda: run.state == RunState.RUNNING)
    assert [process.pid for process in processes(run)] == [run.pid]


def test_a_claim_whose_start_fails_has_its_turn_later(runner: RunnerDaemon, failing: None) -> None:
    failpoints.configure({"FAILPOINTS": "jobs.before_start=raise@1"})
    runs = [start("sleeps"), start("sleeps")]
    with pytest.raises(FailpointError):
        until(runner, runs[0], lambda: False)
    for run in runs:
        until(runner, run, lambda run=run: run.state == RunState.RUNNING)  # type: ignore[misc]
        assert len(processes(run)) == 1


def test_a_runner_killed_after_a_start_finds_the_process_again(
    broker: Broker, tmp_path: Path, spiders: Path, failing: None
) -> None:
    killed = make_runner(broker, tmp_path)
    killed.setup()
    failpoints.configure({"FAILPOINTS": "jobs.started=raise@1"})
    run = start("sleeps")
    with pytest.raises(FailpointError):
        until(killed, run, lambda: False)
    run.refresh_from_db()
    assert (run.state, run.pid) == (RunState.STARTING, None)
    (process,) = processes(run)
    successor = make_runner(broker, tmp_path)
    successor.setup()
    until(successor, run, lambda: run.state == RunState.RUNNING)
    assert run.pid == process.pid
    assert processes(run) == [process]
    reap(killed)
    until(successor, run, lambda: not run.is_active)
    successor.teardown()


def test_a_runner_killed_between_claim_and_start_starts_it_after_all(
    runner: RunnerDaemon, broker: Broker, tmp_path: Path
) -> None:
    run = start("sleeps")
    place_runs(now=timezone.now())
    assert claim_runs(host="host-1", limit=1, now=timezone.now()) == [run]
    runner.setup()
    until(runner, run, lambda: run.state == RunState.RUNNING)


def test_a_claim_that_was_committed_unheard_is_found_in_the_rows(
    runner: RunnerDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.jobs.daemon.intervals.WATCH_EVERY_SECONDS", 0.1)
    run = start("sleeps")
    place_runs(now=timezone.now())
    assert claim_runs(host="host-1", limit=1, now=timezone.now()) == [run]
    until(runner, run, lambda: run.state == RunState.RUNNING)


def test_a_stop_that_the_killed_runner_did_not_see_is_obeyed_by_the_next(
    broker: Broker, tmp_path: Path, spiders: Path
) -> None:
    killed = make_runner(broker, tmp_path)
    killed.setup()
    run = running(killed)
    stop_run(run=run, now=timezone.now(), actor=None)
    successor = make_runner(broker, tmp_path)
    successor.setup()

    def ended() -> bool:
        for handle in killed.handles.values():
            assert handle.process is not None
            handle.process.poll()
        return run.state == RunState.CANCELLED

    until(successor, run, ended)
    assert run.reason == "stopped by a user"
    assert processes(run) == []
    successor.teardown()


def test_a_run_that_was_given_up_for_lost_does_not_go_on(runner: RunnerDaemon) -> None:
    run = running(runner)
    finish_run(run=run, state=RunState.LOST, reason="silent host", now=timezone.now())
    until(runner, run, lambda: not runner.handles)
    assert (run.state, run.reason) == (RunState.LOST, "silent host")
    assert processes(run) == []


def test_a_runner_that_breaks_leaves_its_runs_to_the_next_one(
    broker: Broker, tmp_path: Path, spiders: Path
) -> None:
    with contextlib.closing(Stop()) as stop:
        broken = make_runner(broker, tmp_path, stop=stop)
        broken.setup()
        run = running(broken)
        broken.teardown()
    assert len(processes(run)) == 1
    successor = make_runner(broker, tmp_path)
    successor.setup()
    assert list(successor.handles) == [run.pk]
    reap(broken)
    until(successor, run, lambda: not run.is_active)
    successor.teardown()


def test_a_signal_ends_the_runs_of_a_runner_that_hangs(
    broker: Broker, tmp_path: Path, spiders: Path
) -> None:
    with Stop() as stop:
        hanging = make_runner(broker, tmp_path, stop=stop)
        hanging.setup()
        run = running(hanging)
        # From here on nobody calls it any more, as while it waits for a database that is silent.
        os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + 10
        while processes(run):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        hanging.teardown()
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED


def test_a_run_that_is_asked_twice_to_end_is_signalled_once(
    runner: RunnerDaemon, tmp_path: Path, spiders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.jobs.daemon.intervals.SHUTDOWN_GRACE_SECONDS", 10.0)
    (spiders / "polite.py").write_text(
        "import signal, sys, time\n"
        "def on_signal(number, frame):\n"
        "    print('asked', flush=True)\n"
        "    signal.signal(signal.SIGTERM, lambda *_: print('again', flush=True))\n"
        "    time.sleep(0.5)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, on_signal)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    run = running(runner, "polite")
    log = tmp_path / "runs" / str(run.pk) / "log.txt"
    until(runner, run, lambda: "ready" in log.read_text())
    stop_run(run=run, now=timezone.now(), actor=None)
    until(runner, run, lambda: "asked" in log.read_text())
    runner.teardown()
    assert "again" not in log.read_text()


def test_a_run_of_a_runner_that_now_has_another_name_is_taken_over(
    broker: Broker, tmp_path: Path, spiders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.jobs.daemon.intervals.WATCH_EVERY_SECONDS", 0.1)
    killed = make_runner(broker, tmp_path)
    killed.setup()
    run = running(killed)
    elsewhere = make_run(state=RunState.RUNNING, host="far-away")
    Run.objects.update(watched_at=timezone.now() - timedelta(seconds=60))
    successor = make_runner(broker, tmp_path, host="host-2")
    successor.setup()
    for _ in range(3):
        successor.step()
    run.refresh_from_db()
    elsewhere.refresh_from_db()
    assert (run.host, elsewhere.state) == ("host-1", RunState.RUNNING), "judged too early"
    successor.watcher.reap_at = 0.0
    until(successor, run, lambda: run.host == "host-2")
    until(successor, elsewhere, lambda: elsewhere.state == RunState.LOST)
    assert list(successor.handles) == [run.pk]
    reap(killed)
    until(successor, run, lambda: not run.is_active)
    successor.teardown()


def test_an_adopted_run_is_judged_by_the_folder_it_writes_to(
    broker: Broker, tmp_path: Path, spiders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.jobs.daemon.intervals.WATCH_EVERY_SECONDS", 0.1)
    (spiders / "ends.py").write_text(
        "import os, pathlib, time\n"
        "folder = pathlib.Path(os.environ['CRAWLYARD_RUN_DIR'])\n"
        "while not (folder / 'go').exists(): time.sleep(0.05)\n"
        "(folder / 'exit.json').write_text('{\"state\": \"exited\"}')\n"
        "os._exit(0)\n"
    )
    frozen = make_runner(broker, tmp_path / "one")
    frozen.setup()
    run = running(frozen, "ends")
    Run.objects.update(watched_at=timezone.now() - timedelta(seconds=60))
    adopter = make_runner(broker, tmp_path / "two", host="host-2")
    adopter.setup()
    adopter.step()
    adopter.watcher.reap_at = 0.0
    until(adopter, run, lambda: run.host == "host-2")
    (tmp_path / "one" / "runs" / str(run.pk) / "go").touch()
    until(adopter, run, lambda: not run.is_active)
    assert (run.state, run.reason) == (RunState.EXITED, "")
    reap(frozen)
    adopter.teardown()


def test_a_pid_of_another_machine_adopts_nothing(
    runner: RunnerDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.jobs.daemon.intervals.WATCH_EVERY_SECONDS", 0.1)
    mine = psutil.Process()
    elsewhere = make_run(
        state=RunState.RUNNING, host="far", pid=mine.pid, process_started=mine.create_time()
    )
    Run.objects.update(watched_at=timezone.now() - timedelta(seconds=60))
    runner.step()
    runner.watcher.reap_at = 0.0
    until(runner, elsewhere, lambda: elsewhere.state == RunState.LOST)


def test_what_a_run_has_started_ends_with_it(runner: RunnerDaemon, tmp_path: Path) -> None:
    run = start("family")
    until(runner, run, lambda: not run.is_active)
    log = (tmp_path / "runs" / str(run.pk) / "log.txt").read_text()
    assert log.startswith("child ")
    deadline = time.monotonic() + 10
    while processes(run):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_spider_no_process_can_be_started_with_fails_its_run(runner: RunnerDaemon) -> None:
    run = start("sleeps\0")
    until(runner, run, lambda: run.state == RunState.FAILED)
    assert "could not be started" in run.reason
    assert running(runner).pid


@pytest.mark.parametrize("content", ["[]", "null", "[" * 100_000, '{"state": 7}', "\xff"])
def test_a_strange_last_word_of_a_run_is_no_trouble(tmp_path: Path, content: str) -> None:
    (tmp_path / "exit.json").write_text(content, encoding="latin-1")
    assert read_exit(tmp_path, 1).reason == "exit status 1"


def test_a_last_word_that_nobody_could_store_is_made_storable(tmp_path: Path) -> None:
    told = {"state": "failed", "reason": "a\0b\ud800\nc" + "x" * 5000}
    (tmp_path / "exit.json").write_text(json.dumps(told))
    reason = read_exit(tmp_path, 1).reason
    assert reason.startswith("a b? cxxx")
    assert len(reason) == 1000


def test_a_pipe_instead_of_a_last_word_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "exit.json")
    os.mkfifo(tmp_path / "log.txt")
    assert read_exit(tmp_path, 3).reason == "exit status 3"
