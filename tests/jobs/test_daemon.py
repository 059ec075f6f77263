"""The runner with real processes on a real broker file."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from apps.jobs.daemon import RunnerDaemon
from apps.jobs.runners.base import RunSpec
from apps.jobs.runners.outputs import read_exit
from apps.jobs.runners.process import ProcessRunner
from apps.jobs.services import stop_run
from apps.jobs.states import RunState
from tests.jobs.factories import NOW
from tests.jobs.runners import make_runner, start, until
from yardkit.broker import Broker

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow("1 s")
@pytest.mark.django_db
def test_a_module_that_raises_fails_the_run_with_its_reason(runner: RunnerDaemon) -> None:
    run = start("raises")
    until(runner, run, lambda: run.state == RunState.FAILED)
    assert run.exit_code == 2
    assert "no such luck" in run.reason


@pytest.mark.slow("1 s")
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("module", "hint"),
    [("sleep", "did you mean sleeps?"), ("nowhere", "it has: deaf, family, raises, sleeps")],
)
def test_an_unknown_spider_fails_the_run_and_names_those_that_are_there(
    runner: RunnerDaemon, spiders: Path, module: str, hint: str
) -> None:
    run = start(module)
    until(runner, run, lambda: run.state == RunState.FAILED)
    assert run.reason == f"SPIDERS_DIR ({spiders}) has no module '{module}'; {hint}"


@pytest.mark.django_db
@pytest.mark.fault
def test_a_run_that_is_killed_from_outside_fails_and_says_so(runner: RunnerDaemon) -> None:
    run = start("sleeps")
    until(runner, run, lambda: run.state == RunState.RUNNING)
    os.kill(run.pid or 0, signal.SIGKILL)
    until(runner, run, lambda: run.state == RunState.FAILED)
    assert "killed by signal 9" in run.reason


@pytest.mark.slow("4 s")
@pytest.mark.django_db
def test_a_run_that_does_not_listen_is_killed_after_its_grace(
    runner: RunnerDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.jobs.daemon.intervals.STOP_GRACE_SECONDS", 0.3)
    run = start("deaf")
    log = tmp_path / "runs" / str(run.pk) / "log.txt"
    until(runner, run, lambda: log.exists() and "deaf now" in log.read_text())
    assert run.state == RunState.RUNNING
    stop_run(run=run, now=NOW, actor=None)
    until(runner, run, lambda: run.state == RunState.CANCELLED)


@pytest.mark.slow("1 s")
@pytest.mark.django_db
def test_no_more_runs_than_the_host_has_room_for(runner: RunnerDaemon) -> None:
    runs = [start("sleeps") for _ in range(3)]
    until(runner, runs[1], lambda: runs[1].state == RunState.RUNNING)
    runner.step()
    runs[2].refresh_from_db()
    assert runs[2].state == RunState.QUEUED


@pytest.mark.django_db
def test_the_runners_end_is_the_end_of_its_runs(
    broker: Broker, tmp_path: Path, spiders: Path
) -> None:
    daemon = make_runner(broker, tmp_path)
    daemon.setup()
    run = start("sleeps")
    until(daemon, run, lambda: run.state == RunState.RUNNING)
    pid = run.pid or 0
    daemon.teardown()
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow("1 s")
@pytest.mark.django_db
def test_a_new_runner_takes_over_what_still_runs_and_names_what_is_lost(
    broker: Broker, tmp_path: Path, spiders: Path
) -> None:
    first = make_runner(broker, tmp_path)
    first.setup()
    alive, gone = start("sleeps"), start("sleeps")
    until(first, gone, lambda: gone.state == RunState.RUNNING)
    alive.refresh_from_db()
    # The first runner is forgotten here as after a kill; one of its processes died meanwhile.
    process = first.handles[gone.pk].process
    assert process is not None
    process.kill()
    process.wait()
    second = make_runner(broker, tmp_path)
    second.setup()
    alive.refresh_from_db()
    gone.refresh_from_db()
    assert (alive.state, gone.state) == (RunState.RUNNING, RunState.LOST)
    assert list(second.handles) == [alive.pk]
    first.handles[alive.pk].process.kill()  # type: ignore[union-attr]
    first.handles[alive.pk].process.wait()  # type: ignore[union-attr]
    until(second, alive, lambda: not alive.is_active)
    second.teardown()


def test_a_run_sees_neither_the_database_nor_the_secret_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spiders: Path
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://user:canary@db/x")
    monkeypatch.setenv("SECRET_KEY", "canary")
    (spiders / "shows.py").write_text(
        "import os, sys\nsys.stdout.write(repr(dict(os.environ)))\nsys.exit(3)\n"
    )
    runner = ProcessRunner()
    spec = RunSpec(
        run=1,
        boot="b1",
        spider="shows:Spider",
        folder=tmp_path / "run",
        environment={"BROKER_URL": "sqlite:///x", "CRAWLYARD_RUN_TOKEN": "t"},
        python_path=(str(ROOT / "platform"), str(spiders)),
    )
    handle = runner.start(spec)
    assert handle.process is not None
    handle.process.wait(30)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "BROKER_URL" in log
    assert "canary" not in log


def test_what_a_run_wrote_about_its_end_is_believed(tmp_path: Path) -> None:
    (tmp_path / "exit.json").write_text('{"state": "failed", "reason": "no page"}')
    assert read_exit(tmp_path, 2).reason == "no page"
    (tmp_path / "exit.json").write_text("{half")
    (tmp_path / "log.txt").write_text("one\nlast words\n")
    assert read_exit(tmp_path, -11).reason == "killed by signal 11 (SIGSEGV): last words"
    killed = "exit status 137, killed by signal 9 (SIGKILL): last words"
    assert read_exit(tmp_path, 137).reason == killed
    assert read_exit(tmp_path, 3).reason == "exit status 3: last words"
    assert read_exit(tmp_path, 255).reason == "exit status 255: last words"
