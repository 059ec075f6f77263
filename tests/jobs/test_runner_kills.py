"""A real runner killed, frozen or failing at each failpoint: no run is lost, none starts twice."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator

import docker
import pytest

from tests.jobs.runner_processes import ROOT, WAITS, RunnerHarness
from tests.plugins.measurements import Measured

pytestmark = [pytest.mark.fault, pytest.mark.timeout(180)]

PROCESS_POINTS = {"jobs.claimed", "jobs.placed", "jobs.before_start", "jobs.started"} | {
    "jobs.before_recorded",
    "jobs.exit_seen",
    "jobs.before_restart",
    "jobs.restarted",
    "jobs.acknowledged",
}
CONTAINER_POINTS = {"jobs.container_created"}
# Where the run is ours already, the next runner says that it has taken it over.
NOTED = {"jobs.before_start", "jobs.container_created", "jobs.started", "jobs.before_recorded"} | {
    "jobs.exit_seen"
}


# Containers die by the same lines as processes do, but for those that only containers have.
OF_DOCKER = pytest.param(
    "docker", marks=[pytest.mark.docker, pytest.mark.long("the same with processes")]
)
in_docker = pytest.mark.parametrize(
    "harness", [pytest.param("docker", marks=pytest.mark.docker)], indirect=True
)


@pytest.fixture(scope="module", params=["process", OF_DOCKER])
def harness(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunnerHarness]:
    image = ""
    if request.param == "docker":
        client: docker.DockerClient = request.getfixturevalue("docker_engine")
        image = str(client.images.get(request.getfixturevalue("base_image")).id)
    harness = RunnerHarness(tmp_path_factory.mktemp(request.param), image)
    yield harness
    installation = harness.ask("installation") if image else ""
    harness.end()
    if image:
        label = f"crawlyard.installation={installation}"
        for container in client.containers.list(all=True, filters={"label": label}):
            container.remove(force=True)


@pytest.fixture(autouse=True)
def no_runner_is_left(harness: RunnerHarness) -> Iterator[None]:
    yield
    for name in list(harness.daemons.processes):
        harness.kill_runner(name)


def test_every_failpoint_is_tried() -> None:
    found = {
        name
        for path in (ROOT / "apps" / "jobs").rglob("*.py")
        for name in re.findall(r'failpoints\.hit\("([a-z_.]+)"\)', path.read_text("utf-8"))
        if path.parent.name in ("daemon", "runners") or path.name == "runs.py"
    }
    assert found == PROCESS_POINTS | CONTAINER_POINTS


def notes(look: dict[str, list[list[str]]]) -> list[str]:
    """What runners have said about what they found."""
    return [reason for before, after, reason in look["moves"] if before == after]


STARTS = (
    "jobs.claimed",
    "jobs.placed",
    "jobs.before_start",
    "jobs.started",
    "jobs.before_recorded",
)


@pytest.mark.covers("S1.13")
@pytest.mark.parametrize("point", STARTS)
def test_a_runner_killed_around_a_start_starts_the_run_exactly_once(
    harness: RunnerHarness, point: str, measured: Measured
) -> None:
    starts_once(harness, point, measured)


@in_docker
@pytest.mark.covers("S1.13")
@pytest.mark.parametrize("point", sorted(CONTAINER_POINTS))
def test_a_runner_killed_over_a_container_starts_it_exactly_once(
    harness: RunnerHarness, point: str, measured: Measured
) -> None:
    starts_once(harness, point, measured)


def starts_once(harness: RunnerHarness, point: str, measured: Measured) -> None:
    harness.start_runner(failpoints=f"{point}=kill@1")
    if point == "jobs.placed":
        # It looks for waiting runs when there are none, too.
        harness.until_killed()
        run = harness.start(WAITS)
        harness.start_runner(failpoints=f"{point}=kill@1")
    else:
        run = harness.start(WAITS)
    harness.until_killed()
    harness.start_runner()
    back_at = time.monotonic()
    harness.until_state(run, "running")
    back_s = time.monotonic() - back_at
    harness.until(lambda: harness.starts(run), "its first words", run)
    harness.let_go(run)
    look = harness.until_state(run, "exited", "failed", "lost", "cancelled")
    measured(**harness.counted(run), back_s=back_s)
    assert (look["state"], look["exit_code"] or 0) == ("exited", 0), look
    assert harness.starts(run) == 1
    taken_over = [text for text in notes(look) if "taken over by the runner of one" in text]
    assert bool(taken_over) is (point in NOTED), look["moves"]


def test_a_runner_killed_when_it_has_seen_the_end_still_tells_it(harness: RunnerHarness) -> None:
    harness.start_runner(failpoints="jobs.exit_seen=kill@1")
    run = harness.start(WAITS)
    harness.until_state(run, "running")
    harness.let_go(run)
    harness.until_killed()
    harness.start_runner()
    look = harness.until_state(run, "exited", "failed", "lost", "cancelled")
    assert (look["state"], look["exit_code"], harness.starts(run)) == ("exited", 0, 1), look
    assert notes(look), "the next runner says that it found the end"


@pytest.mark.parametrize("point", ["jobs.before_restart", "jobs.restarted"])
def test_a_runner_killed_in_the_middle_of_a_restart_completes_it(
    harness: RunnerHarness, point: str, measured: Measured
) -> None:
    harness.start_runner(failpoints=f"{point}=kill@1")
    run = harness.start(WAITS)
    first = harness.until_state(run, "running")["boot"]
    harness.until(lambda: harness.starts(run) == 1, "its first words", run)
    harness.ask("ask", run=run, action="restart")
    # It listens to no messages: after two seconds it is signalled.
    harness.until_killed()
    harness.start_runner()
    back_at = time.monotonic()
    harness.until(lambda: harness.starts(run) == 2, "its second start", run)
    back_s = time.monotonic() - back_at
    second = harness.until_state(run, "running")["boot"]
    assert second != first
    harness.let_go(run)
    look = harness.until_state(run, "exited", "failed", "lost", "cancelled")
    measured(**harness.counted(run, wanted=2), back_s=back_s)
    assert (look["state"], harness.starts(run)) == ("exited", 2), look
    assert notes(look)


def test_a_runner_killed_before_it_acknowledges_an_answer_takes_it_once(
    harness: RunnerHarness,
) -> None:
    harness.start_runner(failpoints="jobs.acknowledged=kill@1")
    run = harness.start(WAITS)
    harness.until_state(run, "running")
    command = harness.ask("ask", run=run, action="pause")
    harness.ask("garble", body="no answer at all")
    harness.ask("answer", run=run, command=command, action="pause", times=2)
    harness.until_killed()
    harness.start_runner()
    harness.until_state(run, "paused")
    command = harness.ask("ask", run=run, action="resume")
    harness.ask("answer", run=run, command=command, action="resume")
    harness.until_state(run, "running")
    harness.let_go(run)
    look = harness.until_state(run, "exited", "failed", "lost", "cancelled")
    states = [after for before, after, _reason in look["moves"] if before != after]
    assert states == [
        "queued",
        "starting",
        "running",
        "pausing",
        "paused",
        "resuming",
        "running",
        "exited",
    ]


OTHERWISE = pytest.mark.parametrize("action", ["stop:3", "raise"])
AFTER_THE_START = ("jobs.exit_seen", "jobs.before_restart", "jobs.restarted", "jobs.acknowledged")


@pytest.mark.long("killed there")
@pytest.mark.parametrize("harness", ["process"], indirect=True)
@OTHERWISE
@pytest.mark.parametrize("point", [*STARTS, *AFTER_THE_START])
def test_a_runner_frozen_or_failing_starts_the_run_as_often_as_asked(
    harness: RunnerHarness, point: str, action: str, measured: Measured
) -> None:
    lives_on(harness, point, action, measured)


@in_docker
@pytest.mark.long("killed there")
@OTHERWISE
@pytest.mark.parametrize("point", sorted(CONTAINER_POINTS))
def test_a_runner_frozen_or_failing_over_a_container_starts_it_once(
    harness: RunnerHarness, point: str, action: str, measured: Measured
) -> None:
    lives_on(harness, point, action, measured)


def lives_on(harness: RunnerHarness, point: str, action: str, measured: Measured) -> None:
    """From the start of a run to its end, with what leads to the failpoint in between."""
    failpoint = f"{point}={action}@1"
    harness.start_runner(failpoints=failpoint)
    run = harness.start(WAITS)
    if point not in AFTER_THE_START:
        harness.daemons.until_met("one", failpoint)
    harness.until_state(run, "running")
    harness.until(lambda: harness.starts(run), "its first words", run)
    wanted = 1
    if point in ("jobs.before_restart", "jobs.restarted"):
        wanted = 2
        harness.ask("ask", run=run, action="restart")
        harness.daemons.until_met("one", failpoint)
        harness.until(lambda: harness.starts(run) == wanted, "its second start", run)
        harness.until_state(run, "running")
    elif point == "jobs.acknowledged":
        command = harness.ask("ask", run=run, action="pause")
        harness.ask("answer", run=run, command=command, action="pause", times=2)
        harness.daemons.until_met("one", failpoint)
        harness.until_state(run, "paused")
        command = harness.ask("ask", run=run, action="resume")
        harness.ask("answer", run=run, command=command, action="resume")
        harness.until_state(run, "running")
    harness.let_go(run)
    if point == "jobs.exit_seen":
        harness.daemons.until_met("one", failpoint)
    look = harness.until_state(run, "exited", "failed", "lost", "cancelled")
    measured(**harness.counted(run, wanted=wanted))
    assert (look["state"], harness.starts(run)) == ("exited", wanted), look


@pytest.mark.covers("S1.55")
def test_a_frozen_run_goes_on_under_the_next_runner(
    harness: RunnerHarness, measured: Measured
) -> None:
    harness.start_runner()
    run = harness.start(WAITS)
    harness.until_state(run, "running")
    harness.ask("ask", run=run, action="freeze")
    harness.until_state(run, "paused")
    harness.kill_runner()
    harness.let_go(run)
    harness.start_runner()
    back_at = time.monotonic()
    harness.until(lambda: notes(harness.look(run)), "the take-over", run)
    back_s = time.monotonic() - back_at
    assert harness.look(run)["state"] == "paused"
    harness.ask("ask", run=run, action="thaw")
    look = harness.until_state(run, "exited", "failed", "lost", "cancelled")
    measured(**harness.counted(run), back_s=back_s)
    assert (look["state"], harness.starts(run)) == ("exited", 1), look


@pytest.mark.covers("S1.55")
def test_a_run_beyond_its_time_is_stopped_and_has_failed(harness: RunnerHarness) -> None:
    harness.start_runner()
    run = harness.start(WAITS, max_run_seconds=1)
    look = harness.until_state(run, "exited", "failed", "lost", "cancelled")
    assert (look["state"], look["reason"]) == ("failed", "time limit of 1 s")


def test_a_web_process_killed_before_the_wake_up_loses_no_run(
    harness: RunnerHarness, measured: Measured
) -> None:
    harness.start_runner()
    harness.until(lambda: harness.ask("hosts"), "the host")
    script = (
        "import django; django.setup()\n"
        "from tests.jobs.helper_process import start\n"
        f"start(command=['python3', '-c', {WAITS!r}], image={harness.image!r})\n"
        "import time; time.sleep(60)\n"
    )
    web = subprocess.run(
        [sys.executable, "-c", script],
        env={
            **harness.daemons.environment,
            "DJANGO_SETTINGS_MODULE": "crawlyard.settings.base",
            "FAILPOINTS": "outbox.before_publish=kill@1",
        },
        cwd=ROOT,
        capture_output=True,
        timeout=90,
        check=False,
    )
    assert web.returncode == -9, web.stderr
    run = harness.ask("newest")
    back_at = time.monotonic()
    harness.until_state(run, "running")
    back_s = time.monotonic() - back_at
    harness.let_go(run)
    harness.until_state(run, "exited")
    measured(**harness.counted(run), back_s=back_s)
    assert harness.starts(run) == 1
