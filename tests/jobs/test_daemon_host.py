"""What a runner says of its host, and what it gives a run of a command."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from apps.jobs.daemon import RunnerDaemon
from apps.jobs.models import Host
from apps.jobs.runners.docker import DockerRunner
from apps.jobs.services import start_run
from apps.jobs.states import RunState
from tests.jobs.factories import NOW, make_job
from tests.jobs.runners import until
from yardkit.broker import Broker
from yardkit.clock import SystemClock

pytestmark = pytest.mark.django_db


@pytest.mark.covers("S1.52")
def test_a_runner_registers_its_host(runner: RunnerDaemon) -> None:
    host = Host.objects.get()
    assert (host.name, host.kind, host.capacity, host.problem) == ("host-1", "process", 2, "")
    assert host.engine.startswith("Python 3")


# The SDK of Docker drops sockets that could not connect.
@pytest.mark.slow("1 s")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_host_whose_engine_is_away_says_so_and_gets_no_runs(
    broker: Broker, tmp_path: Path
) -> None:
    engine = DockerRunner(f"unix://{tmp_path}/none.sock", installation="test", host="server")
    daemon = RunnerDaemon(
        broker=broker,
        host="server",
        clock=SystemClock(),
        capacity=2,
        folder=tmp_path / "runs",
        runner=engine,
    )
    daemon.setup()
    host = Host.objects.get()
    assert (host.kind, host.problem.split(":")[0]) == ("docker", "Docker does not answer")
    run = start_run(job=make_job(), now=NOW, actor=None)
    type(run).objects.filter(pk=run.pk).update(image_digest="sha256:1")
    until(daemon, run, lambda: "Docker does not answer" in run.waiting_reason)
    assert run.state == RunState.QUEUED
    daemon.teardown()
    gc.collect()


def test_a_command_gets_its_environment_and_its_secrets_and_no_shell(
    runner: RunnerDaemon, tmp_path: Path
) -> None:
    code = (
        "import os, sys\n"
        "open(os.environ['CRAWLYARD_RUN_DIR'] + '/seen', 'w').write(\n"
        "    ' '.join([os.environ['COLOUR'], os.environ['TOKEN'], sys.argv[1],\n"
        "    os.environ['CRAWLYARD_RUN'], os.environ['CRAWLYARD_TOPIC']]))\n"
    )
    job = make_job(
        spider="",
        command=["python3", "-c", code, "$HOME;"],
        environment={"COLOUR": "red", "CRAWLYARD_RUN": "999"},
        secrets='{"TOKEN": "s3cret"}',
    )
    run = start_run(job=job, now=NOW, actor=None)
    until(runner, run, lambda: not run.is_active)
    assert (run.state, run.exit_code) == (RunState.EXITED, 0), run.reason
    seen = (tmp_path / "runs" / str(run.pk) / "seen").read_text()
    assert seen == f"red s3cret $HOME; {run.pk} {run.topic}"


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"command": ["no-such-program"]}, "no program 'no-such-program'"),
        ({"spider": ""}, "neither an image nor a command nor a spider"),
        ({"secrets": "not json"}, "secret environment is no JSON object"),
    ],
)
def test_what_can_never_run_fails_with_the_reason(
    runner: RunnerDaemon, fields: dict[str, object], reason: str
) -> None:
    run = start_run(job=make_job(**fields), now=NOW, actor=None)
    until(runner, run, lambda: run.state == RunState.FAILED)
    assert reason in run.reason
    assert "not json" not in run.reason
