"""A real runner killed, frozen or failing at each failpoint: no run is lost, none starts twice."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator

import docker
import pytest

from tests.jobs.runner_processes import ROOT, WAITS, Yard
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
    "yard", [pytest.param("docker", marks=pytest.mark.docker)], indirect=True
)


@pytest.fixture(scope="module", params=["process", OF_DOCKER])
def yard(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Yard]:
    image = ""
    if request.param == "docker":
        client: docker.DockerClient = request.getfixturevalue("docker_engine")
        image = str(client.images.get(request.getfixturevalue("base_image")).id)
    yard = Yard(tmp_path_factory.mktemp(request.param), image)
    yield yard
    installation = yard.ask("installation") if image else ""
    yard.end()
    if image:
        label = f"crawlyard.installation={installation}"
        for container in client.containers.list(all=True, filters={"label": label}):
            container.remove(force=True)


@pytest.fixture(autouse=True)
def no_runner_is_left(yard: Yard) -> Iterator[None]:
    yield
    for name in list(yard.daemons.processes):
        yard.kill_runner(name)


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
    yard: Yard, point: str, measured: Measured
) -> None:
    starts_once(yard, point, measured)


@in_docker
@pytest.mark.covers("S1.13")
@pytest.mark.parametrize("point", sorted(CONTAINER_POINTS))
def test_a_runner_killed_over_a_container_starts_it_exactly_once(
    yard: Yard, point: str, measured: Measured
) -> None:
    starts_once(yard, point, measured)


def starts_once(yard: Yard, point: str, measured: Measured) -> None:
    yard.start_runner(failpoints=f"{point}=kill@1")
    if point == "jobs.placed":
        # It looks for waiting runs when there are none, too.
        yard.until_killed()
        run = yard.start(WAITS)
        yard.start_runner(failpoints=f"{point}=kill@1")
    else:
        run = yard.start(WAITS)
    yard.until_killed()
    yard.start_runner()
    back_at = time.monotonic()
    yard.until_state(run, "running")
    back_s = time.monotonic() - back_at
    yard.until(lambda: yard.starts(run), "its first words", run)
    yard.let_go(run)
    look = yard.until_state(run, "exited", "failed", "lost", "cancelled")
    measured(**yard.counted(run), back_s=back_s)
    assert (look["state"], look["exit_code"] or 0) == ("exited", 0), look
    assert yard.starts(run) == 1
    taken_over = [text for text in notes(look) if "taken over by the runner of one" in text]
    assert bool(taken_over) is (point in NOTED), look["moves"]


def test_a_runner_killed_when_it_has_seen_the_end_still_tells_it(yard: Yard) -> None:
    yard.start_runner(failpoints="jobs.exit_seen=kill@1")
    run = yard.start(WAITS)
    yard.until_state(run, "running")
    yard.let_go(run)
    yard.until_killed()
    yard.start_runner()
    look = yard.until_state(run, "exited", "failed", "lost", "cancelled")
    assert (look["state"], look["exit_code"], yard.starts(run)) == ("exited", 0, 1), look
    assert notes(look), "the next runner says that it found the end"


@pytest.mark.parametrize("point", ["jobs.before_restart", "jobs.restarted"])
def test_a_runner_killed_in_the_middle_of_a_restart_completes_it(
    yard: Yard, point: str, measured: Measured
) -> None:
    yard.start_runner(failpoints=f"{point}=kill@1")
    run = yard.start(WAITS)
    first = yard.until_state(run, "running")["boot"]
    yard.until(lambda: yard.starts(run) == 1, "its first words", run)
    yard.ask("ask", run=run, action="restart")
    # It listens to no messages: after two seconds it is signalled.
    yard.until_killed()
    yard.start_runner()
    back_at = time.monotonic()
    yard.until(lambda: yard.starts(run) == 2, "its second start", run)
    back_s = time.monotonic() - back_at
    second = yard.until_state(run, "running")["boot"]
    assert second != first
    yard.let_go(run)
    look = yard.until_state(run, "exited", "failed", "lost", "cancelled")
    measured(**yard.counted(run, wanted=2), back_s=back_s)
    assert (look["state"], yard.starts(run)) == ("exited", 2), look
    assert notes(look)


def test_a_runner_killed_before_it_acknowledges_an_answer_takes_it_once(yard: Yard) -> None:
    yard.start_runner(failpoints="jobs.acknowledged=kill@1")
    run = yard.start(WAITS)
    yard.until_state(run, "running")
    command = yard.ask("ask", run=run, action="pause")
    yard.ask("garble", body="no answer at all")
    yard.ask("answer", run=run, command=command, action="pause", times=2)
    yard.until_killed()
    yard.start_runner()
    yard.until_state(run, "paused")
    command = yard.ask("ask", run=run, action="resume")
    yard.ask("answer", run=run, command=command, action="resume")
    yard.until_state(run, "running")
    yard.let_go(run)
    look = yard.until_state(run, "exited", "failed", "lost", "cancelled")
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
@pytest.mark.parametrize("yard", ["process"], indirect=True)
@OTHERWISE
@pytest.mark.parametrize("point", [*STARTS, *AFTER_THE_START])
def test_a_runner_frozen_or_failing_starts_the_run_as_often_as_asked(
    yard: Yard, point: str, action: str, measured: Measured
) -> None:
    lives_on(yard, point, action, measured)


@in_docker
@pytest.mark.long("killed there")
@OTHERWISE
@pytest.mark.parametrize("point", sorted(CONTAINER_POINTS))
def test_a_runner_frozen_or_failing_over_a_container_starts_it_once(
    yard: Yard, point: str, action: str, measured: Measured
) -> None:
    lives_on(yard, point, action, measured)


def lives_on(yard: Yard, point: str, action: str, measured: Measured) -> None:
    """From the start of a run to its end, with what leads to the failpoint in between."""
    failpoint = f"{point}={action}@1"
    yard.start_runner(failpoints=failpoint)
    run = yard.start(WAITS)
    if point not in AFTER_THE_START:
        yard.daemons.until_met("one", failpoint)
    yard.until_state(run, "running")
    yard.until(lambda: yard.starts(run), "its first words", run)
    wanted = 1
    if point in ("jobs.before_restart", "jobs.restarted"):
        wanted = 2
        yard.ask("ask", run=run, action="restart")
        yard.daemons.until_met("one", failpoint)
        yard.until(lambda: yard.starts(run) == wanted, "its second start", run)
        yard.until_state(run, "running")
    elif point == "jobs.acknowledged":
        command = yard.ask("ask", run=run, action="pause")
        yard.ask("answer", run=run, command=command, action="pause", times=2)
        yard.daemons.until_met("one", failpoint)
        yard.until_state(run, "paused")
        command = yard.ask("ask", run=run, action="resume")
        yard.ask("answer", run=run, command=command, action="resume")
        yard.until_state(run, "running")
    yard.let_go(run)
    if point == "jobs.exit_seen":
        yard.daemons.until_met("one", failpoint)
    look = yard.until_state(run, "exited", "failed", "lost", "cancelled")
    measured(**yard.counted(run, wanted=wanted))
    assert (look["state"], yard.starts(run)) == ("exited", wanted), look


@pytest.mark.covers("S1.55")
def test_a_frozen_run_goes_on_under_the_next_runner(yard: Yard, measured: Measured) -> None:
    yard.start_runner()
    run = yard.start(WAITS)
    yard.until_state(run, "running")
    yard.ask("ask", run=run, action="freeze")
    yard.until_state(run, "paused")
    yard.kill_runner()
    yard.let_go(run)
    yard.start_runner()
    back_at = time.monotonic()
    yard.until(lambda: notes(yard.look(run)), "the take-over", run)
    back_s = time.monotonic() - back_at
    assert yard.look(run)["state"] == "paused"
    yard.ask("ask", run=run, action="thaw")
    look = yard.until_state(run, "exited", "failed", "lost", "cancelled")
    measured(**yard.counted(run), back_s=back_s)
    assert (look["state"], yard.starts(run)) == ("exited", 1), look


@pytest.mark.covers("S1.55")
def test_a_run_beyond_its_time_is_stopped_and_has_failed(yard: Yard) -> None:
    yard.start_runner()
    run = yard.start(WAITS, max_run_seconds=1)
    look = yard.until_state(run, "exited", "failed", "lost", "cancelled")
    assert (look["state"], look["reason"]) == ("failed", "time limit of 1 s")


def test_a_web_process_killed_before_the_wake_up_loses_no_run(
    yard: Yard, measured: Measured
) -> None:
    yard.start_runner()
    yard.until(lambda: yard.ask("hosts"), "the host")
    script = (
        "import django; django.setup()\n"
        "from tests.jobs.helper_process import start\n"
        f"start(command=['python3', '-c', {WAITS!r}], image={yard.image!r})\n"
        "import time; time.sleep(60)\n"
    )
    web = subprocess.run(
        [sys.executable, "-c", script],
        env={
            **yard.daemons.environment,
            "DJANGO_SETTINGS_MODULE": "crawlyard.settings.base",
            "FAILPOINTS": "outbox.before_publish=kill@1",
        },
        cwd=ROOT,
        capture_output=True,
        timeout=90,
        check=False,
    )
    assert web.returncode == -9, web.stderr
    run = yard.ask("newest")
    back_at = time.monotonic()
    yard.until_state(run, "running")
    back_s = time.monotonic() - back_at
    yard.let_go(run)
    yard.until_state(run, "exited")
    measured(**yard.counted(run), back_s=back_s)
    assert yard.starts(run) == 1
