"""Build workers as real processes: what they build, and what is left when they are killed."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.daemon_processes import ROOT, Daemons
from tests.plugins.git_server import GitServer
from tests.plugins.measurements import Measured
from yardkit import topology
from yardkit.broker import connect
from yardkit.protocol import LogBatch, decode

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
OTHER_STEPS = pytest.mark.long("killed in the middle of a step")

PATIENCE_SECONDS = 180.0
CLERK = """
import json, sys
for line in sys.stdin:
    code, values = json.loads(line)
    exec(code, dict(values))
    sys.stdout.flush()
"""
OWNER = """
import json
from apps.projects.services.build_worker import engine_options
print("ANSWER" + json.dumps(engine_options().owner))
"""
QUEUE = """
from django.utils import timezone
from apps.projects.models import Project
from apps.projects.services import build_tag
project, _ = Project.objects.update_or_create(slug=SLUG, defaults={"name": SLUG, **FIELDS})
build = build_tag(project=project, tag=TAG, now=timezone.now(), actor=None)
print("ANSWER" + str(build.pk))
"""
CANCEL = """
from django.utils import timezone
from apps.projects.models import Build
from apps.projects.services import cancel_build
cancel_build(build=Build.objects.get(pk=PK), now=timezone.now(), actor=None)
print("ANSWER0")
"""
FORGET = """
from apps.projects.models import Build
from apps.projects.states import BUILD_FINAL
Build.objects.exclude(state__in=BUILD_FINAL).delete()
print("ANSWER0")
"""
# As if the lease were over: nobody has to wait for it.
SWEEP = """
from datetime import timedelta
from django.utils import timezone
from apps.projects.services.build_states import LEASE_SECONDS, reap_builds
lost = reap_builds(now=timezone.now() + timedelta(seconds=LEASE_SECONDS + 1))
print("ANSWER" + str(lost))
"""


class WorkerHarness:
    """An installation of its own with build workers, a git repository and the local engine."""

    def __init__(
        self, folder: Path, git_server: GitServer, client: Any, base: str, **environment: str
    ) -> None:
        self.daemons = Daemons(
            folder, BUILD_NETWORK="none", GIT_ALLOWED_NETWORKS="127.0.0.0/8", **environment
        )
        self.client = client
        self.base = base
        self.git_server = git_server
        self.slug = f"yard-{random.randrange(10**9)}"
        self.repository = git_server.make_repository(self.slug)
        self._workers = 0
        self._clerk: subprocess.Popen[str] | None = None
        self.daemons.migrate()
        self.owner = self.ask(OWNER)

    def ask(self, code: str, **values: Any) -> Any:
        """What the code prints behind ANSWER; one process does it all, for a start takes long."""
        if self._clerk is None:
            self._clerk = subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), "shell", "-v0", "-c", CLERK],
                env=self.daemons.environment,
                cwd=self.daemons.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._clerk.stdin is not None
        assert self._clerk.stdout is not None
        self._clerk.stdin.write(json.dumps([code, values]) + "\n")
        self._clerk.stdin.flush()
        for line in self._clerk.stdout:
            if line.startswith("ANSWER"):
                return json.loads(line.removeprefix("ANSWER"))
        raise AssertionError("the clerk is gone")

    def queue(self, tag: str, dockerfile: str, **fields: Any) -> int:
        text = f"FROM {self.base}\nLABEL crawlyard.test=1\n{dockerfile}\n"
        self.repository.commit({"Dockerfile": text})
        self.repository.tag(tag)
        values = {
            "git_url": self.repository.url,
            "git_username": self.git_server.username,
            "git_password": self.git_server.password,
            **fields,
        }
        return int(self.ask(QUEUE, SLUG=self.slug, TAG=tag, FIELDS=values))

    def look(self, tag: str) -> dict[str, Any]:
        """The builds of a tag, and their images: from the file, for no process is as quick."""
        path = self.daemons.folder / "data" / "crawlyard.sqlite3"
        with contextlib.closing(sqlite3.connect(path, timeout=60)) as database:
            database.row_factory = sqlite3.Row
            builds = database.execute(
                "SELECT * FROM projects_build WHERE tag = ? ORDER BY id", (tag,)
            ).fetchall()
            images = database.execute(
                "SELECT i.* FROM projects_image i JOIN projects_build b ON b.id = i.build_id "
                "WHERE b.tag = ?",
                (tag,),
            ).fetchall()
        return {"builds": list(map(dict, builds)), "images": list(map(dict, images))}

    def until(self, tag: str, *states: str) -> dict[str, Any]:
        """When the builds of the tag are in these states."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.look(tag)
            if [each["state"] for each in found["builds"]] == list(states):
                return found
            assert time.monotonic() < deadline, [
                (each["state"], each["step"], each["worker"], each["reason"])
                for each in found["builds"]
            ]
            time.sleep(0.2)

    def until_building(self, tag: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while [each["step"] for each in self.look(tag)["builds"]] != ["build"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def worker(self, failpoints: str = "") -> str:
        self._workers += 1
        name = f"worker-{self._workers}"
        extra = {"FAILPOINTS": failpoints} if failpoints else {}
        self.daemons.start(name, "run_worker", "--name", name, "--concurrency", "2", **extra)
        return name

    def until_killed(self, name: str) -> None:
        process = self.daemons.processes.pop(name)
        assert process.wait(PATIENCE_SECONDS) == -9, self.daemons.log(name)

    def kill(self, name: str) -> None:
        process = self.daemons.processes.pop(name)
        process.kill()
        process.wait()

    def left(self) -> list[str]:
        """What is in the engine besides named images."""
        label = {"label": f"crawlyard.layer={self.owner}"}
        # Plain lists: the other ones ask for each of them, and one may be gone by then.
        api = self.client.api
        images: list[str] = api.images(quiet=True, filters={**label, "dangling": True})
        return [*images, *(each["Id"] for each in api.containers(all=True, filters=label))]

    def until_nothing_is_left(self) -> None:
        deadline = time.monotonic() + 60
        while left := self.left():
            assert time.monotonic() < deadline, left
            time.sleep(0.3)

    def end(self) -> None:
        self.daemons.end()
        if self._clerk is not None:
            self._clerk.communicate(timeout=60)
        label = {"label": f"crawlyard.layer={self.owner}"}
        for image in self.client.images.list(filters=label):
            self.client.images.remove(image.id, force=True)


@pytest.fixture(autouse=True)
def nothing_left_over(harness: WorkerHarness) -> Iterator[None]:
    """A test that failed leaves no worker and no build to the next one."""
    yield
    for name in list(harness.daemons.processes):
        harness.kill(name)
    harness.ask(FORGET)


@pytest.fixture(scope="module")
def harness(
    tmp_path_factory: pytest.TempPathFactory,
    git_server: GitServer,
    docker_engine: docker.DockerClient,
    base_image: str,
) -> Iterator[WorkerHarness]:
    made = WorkerHarness(tmp_path_factory.mktemp("builds"), git_server, docker_engine, base_image)
    yield made
    made.end()


def logged(harness: WorkerHarness, stream: str, last: str) -> list[str]:
    """The lines in the queue of logs, once ``last`` is among them."""
    broker = connect(f"sqlite:///{harness.daemons.folder / 'data' / 'broker.sqlite3'}", name="test")
    deadline = time.monotonic() + PATIENCE_SECONDS
    found: dict[int, str] = {}
    try:
        subscription = broker.subscribe(topology.LOGS.name)
        while last not in found.values():
            assert time.monotonic() < deadline, found
            deliveries = subscription.take(100, timeout=1.0)
            for delivery in deliveries:
                batch = decode(delivery.body)
                assert isinstance(batch, LogBatch)
                if batch.stream == stream:
                    found |= {line.seq: line.text for line in batch.lines}
            subscription.ack(deliveries)
    finally:
        broker.close()
    assert sorted(found) == list(range(1, len(found) + 1))
    return [found[number] for number in sorted(found)]


@pytest.mark.covers("S1.4")
def test_a_queued_build_becomes_an_image_with_its_log(harness: WorkerHarness) -> None:
    name = harness.worker()
    number = harness.queue(
        "prod/first/1.0", f"RUN echo good day; echo {harness.git_server.password}"
    )
    found = harness.until("prod/first/1.0", "succeeded")
    (build,), (image,) = found["builds"], found["images"]
    steps = json.loads(build["steps"])
    assert [each["step"] for each in steps] == [
        *("clone", "prepare", "build", "check", "describe", "store")
    ]
    assert all(each["ended_at"] for each in steps)
    assert build["commit"] == harness.repository.head()
    assert (image["name"], image["tag"]) == (f"crawlyard/{harness.slug}/first", "prod-1.0")
    reference = f"{image['name']}:{image['tag']}"
    lines = logged(harness, f"build:{number}", f"succeeded: {reference}")
    assert "good day" in lines
    assert lines[-1] == f"succeeded: {reference}"
    assert harness.client.images.get(reference).id == image["digest"]
    assert harness.git_server.password not in "\n".join(lines)
    harness.until_nothing_is_left()
    folder = harness.daemons.folder / "data" / "builds"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := [each for each in folder.iterdir() if each.is_dir()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    harness.kill(name)


def test_a_running_build_is_cancelled_and_another_one_fails(harness: WorkerHarness) -> None:
    name = harness.worker()
    number = harness.queue("prod/slow/1.0", "RUN sleep 3600")
    harness.until_building("prod/slow/1.0")
    harness.ask(CANCEL, PK=number)
    harness.until("prod/slow/1.0", "cancelled")
    harness.queue("prod/bad/1.0", "RUN echo so && exit 7")
    found = harness.until("prod/bad/1.0", "failed")
    assert "RUN echo so && exit 7" in found["builds"][0]["reason"]
    assert found["images"] == []
    harness.until_nothing_is_left()
    harness.kill(name)


@pytest.mark.fault
@pytest.mark.covers("S1.4")
@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param("projects.build.claimed=kill@1", marks=OTHER_STEPS),
        pytest.param("projects.build.cloned=kill@1", marks=OTHER_STEPS),
        "projects.build.step=kill@4",
        pytest.param("projects.build.before_store=kill@1", marks=OTHER_STEPS),
    ],
)
def test_a_killed_workers_build_is_lost_and_done_once_more(
    harness: WorkerHarness, failpoint: str, measured: Measured
) -> None:
    tag = f"prod/{failpoint.partition('=')[0].rpartition('.')[2]}/1.0"
    name = harness.worker(failpoint)
    harness.queue(tag, f"RUN echo {tag} > /one\nRUN sleep 2; echo two > /two\nRUN echo three")
    harness.until_killed(name)
    harness.until(tag, "running")
    assert harness.ask(SWEEP) == 1
    name = harness.worker()
    back_at = time.monotonic()
    found = harness.until(tag, "lost", "succeeded")
    back_s = time.monotonic() - back_at
    images = len(found["images"])
    measured(of=1, lost=max(1 - images, 0), twice=max(images - 1, 0), back_s=back_s)
    first, second = found["builds"]
    assert (first["attempt"], second["attempt"], second["repeats_id"]) == (1, 2, first["id"])
    (image,) = found["images"]
    assert image["build_id"] == second["id"]
    harness.until_nothing_is_left()
    assert harness.client.images.get(f"{image['name']}:{image['tag']}").id == image["digest"]
    harness.kill(name)


STEPS = {
    "projects.build.claimed": 1,
    "projects.build.cloned": 1,
    "projects.build.step": 3,
    "projects.build.before_store": 1,
    "projects.build.stored": 1,
}


@pytest.mark.fault
@OTHER_STEPS
@pytest.mark.parametrize("action", ["stop:3", "raise"])
@pytest.mark.parametrize("point", STEPS)
def test_a_frozen_or_failing_worker_ends_its_build_once(
    harness: WorkerHarness, point: str, action: str, measured: Measured
) -> None:
    tag = f"prod/{point.rpartition('.')[2].replace('_', '-')}-{action[:4]}/1.0"
    failpoint = f"{point}={action}@{STEPS[point]}"
    name = harness.worker(failpoint)
    harness.queue(tag, f"RUN echo {tag} > /one\nRUN echo two > /two")
    harness.daemons.until_met(name, failpoint, PATIENCE_SECONDS)
    succeeds = action != "raise" or point == "projects.build.stored"
    if point == "projects.build.claimed" and not succeeds:
        # Nobody works on it any more, and nobody knows.
        harness.kill(name)
        assert harness.ask(SWEEP) == 1
        name = harness.worker()
        found, succeeds = harness.until(tag, "lost", "succeeded"), True
    else:
        found = harness.until(tag, "succeeded" if succeeds else "failed")
    images = len(found["images"])
    measured(of=1, lost=max(succeeds - images, 0), twice=max(images - succeeds, 0))
    assert images == succeeds
    if not succeeds:
        assert f"FailpointError: {point}" in found["builds"][0]["reason"]
    harness.until_nothing_is_left()
    harness.kill(name)


def test_a_stopped_workers_build_begins_anew_at_once(harness: WorkerHarness) -> None:
    tag = "prod/stopped/1.0"
    # Long enough for the worker that ends to take what it has just left to the next one.
    name = harness.worker("worker.left=sleep:1")
    harness.queue(tag, "RUN sleep 4")
    harness.until_building(tag)
    process = harness.daemons.processes.pop(name)
    process.terminate()
    assert process.wait(30) == 0, harness.daemons.log(name)
    first, second = harness.until(tag, "lost", "queued")["builds"]
    assert (first["attempt"], second["attempt"], second["repeats_id"]) == (1, 1, first["id"])
    name = harness.worker()
    found = harness.until(tag, "lost", "succeeded")
    assert [each["build_id"] for each in found["images"]] == [second["id"]]
    harness.kill(name)


@pytest.mark.fault
def test_two_killed_workers_are_enough(harness: WorkerHarness) -> None:
    tag = "prod/twice/1.0"
    name = harness.worker("projects.build.cloned=kill@1")
    harness.queue(tag, "RUN true")
    harness.until_killed(name)
    assert harness.ask(SWEEP) == 1
    name = harness.worker("projects.build.cloned=kill@1")
    harness.until_killed(name)
    assert harness.ask(SWEEP) == 1
    found = harness.until(tag, "lost", "lost")
    assert found["images"] == []


@pytest.mark.fault
def test_an_image_whose_worker_died_before_it_had_its_name_gets_it(harness: WorkerHarness) -> None:
    name = harness.worker("projects.build.stored=kill@1")
    harness.queue("prod/nameless/1.0", "RUN echo nameless > /n")
    harness.until_killed(name)
    found = harness.until("prod/nameless/1.0", "succeeded")
    (image,) = found["images"]
    assert harness.ask(SWEEP) == 0
    assert image["digest"] in harness.left()
    name = harness.worker()
    harness.queue("prod/next/1.0", "RUN true")
    harness.until("prod/next/1.0", "succeeded")
    harness.until_nothing_is_left()
    assert harness.client.images.get(f"{image['name']}:{image['tag']}").id == image["digest"]
    harness.kill(name)


@pytest.mark.fault
@pytest.mark.long("a killed worker's build is lost, and done once more")
def test_a_worker_that_slept_too_long_ends_nothing(harness: WorkerHarness) -> None:
    tag = "prod/sleeper/1.0"
    name = harness.worker()
    harness.queue(tag, "RUN echo begun; sleep 20")
    harness.until_building(tag)
    # Its lease is over while it still works: another build takes its place.
    assert harness.ask(SWEEP) == 1
    found = harness.until(tag, "lost", "succeeded")
    (image,) = found["images"]
    assert image["build_id"] == found["builds"][1]["id"]
    harness.until_nothing_is_left()
    harness.kill(name)


@pytest.mark.fault
@pytest.mark.services
def test_the_same_on_rabbitmq(
    tmp_path: Path,
    rabbit_vhost: str,
    git_server: GitServer,
    docker_engine: docker.DockerClient,
    base_image: str,
) -> None:
    made = WorkerHarness(
        tmp_path / "r", git_server, docker_engine, base_image, BROKER_URL=rabbit_vhost
    )
    try:
        name = made.worker("projects.build.step=kill@3")
        made.queue("prod/rabbit/1.0", "RUN echo rabbit > /r")
        made.until_killed(name)
        assert made.ask(SWEEP) == 1
        made.worker()
        found = made.until("prod/rabbit/1.0", "lost", "succeeded")
        assert len(found["images"]) == 1
        made.until_nothing_is_left()
    finally:
        made.end()
