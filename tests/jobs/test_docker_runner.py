"""What containers have and processes have not: limits, walls, an engine that may be away."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import docker
import pytest

from apps.jobs.runners.base import (
    CannotRun,
    ContainerLimits,
    RegistryLogin,
    RunExit,
    RunHandle,
    RunnerAway,
)
from apps.jobs.runners.docker import DockerRunner
from tests.jobs.containers import SOCKET
from tests.jobs.test_runner_contract import SLEEPS, Bench, until

pytestmark = pytest.mark.docker


@pytest.fixture
def bench(docker_runner: Callable[..., DockerRunner], base_image_id: str, tmp_path: Path) -> Bench:
    return Bench(docker_runner, tmp_path, image=base_image_id)


def inspect(engine: docker.DockerClient, handle: RunHandle) -> dict[str, Any]:
    return dict(engine.containers.get(handle.container).attrs)


@pytest.mark.covers("S1.13")
def test_a_container_has_its_name_labels_limits_and_walls(
    bench: Bench, docker_engine: docker.DockerClient, installation: str
) -> None:
    handle = bench.start(SLEEPS, labels={"crawlyard.job": "3"})
    facts = inspect(docker_engine, handle)
    assert facts["Name"] == "/crawlyard-run-7-b1"
    labels = facts["Config"]["Labels"]
    assert labels["crawlyard.run"] == "7"
    assert labels["crawlyard.boot"] == "b1"
    assert labels["crawlyard.job"] == "3"
    assert labels["crawlyard.host"] == "host-1"
    assert labels["crawlyard.installation"] == installation
    host = facts["HostConfig"]
    assert host["NanoCpus"] == 1_000_000_000
    assert host["Memory"] == host["MemorySwap"] == 128 * 1024**2
    assert host["PidsLimit"] == 32
    assert host["NetworkMode"] == "none"
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["ReadonlyRootfs"] is True
    assert not host["Privileged"]
    assert host["RestartPolicy"]["Name"] in ("", "no")
    assert host["LogConfig"]["Type"] == "json-file"
    assert host["LogConfig"]["Config"]["max-size"]
    assert [mount["Target"] for mount in host["Mounts"]] == ["/crawlyard"]


def test_inside_it_is_nobody_and_can_write_nowhere_but_at_home(bench: Bench) -> None:
    code = (
        "import json, os, pathlib\n"
        "def may(path):\n"
        "    try: pathlib.Path(path, 'x').write_text('x')\n"
        "    except OSError: return False\n"
        "    return True\n"
        "status = pathlib.Path('/proc/self/status').read_text()\n"
        "told = dict(uid=os.getuid(), root=may('/'), app=may('/app'), tmp=may('/tmp'),\n"
        "    own=may(os.environ['CRAWLYARD_RUN_DIR']), home=os.environ['HOME'],\n"
        "    effective=status.split('CapEff:')[1].split()[0],\n"
        "    no_new=status.split('NoNewPrivs:')[1].split()[0],\n"
        "    sockets=os.path.exists('/var/run/docker.sock'))\n"
        "print(json.dumps(told), flush=True)\n"
    )
    handle = bench.start(code)
    assert bench.end(handle) == RunExit(code=0)
    told = json.loads(bench.written(handle, "}"))
    assert told.pop("uid") != 0
    assert told == {
        "root": False,
        "app": False,
        "tmp": True,
        "own": True,
        "home": "/tmp",
        "effective": "0000000000000000",
        "no_new": "1",
        "sockets": False,
    }
    mine = os.stat(bench.folder / "7")
    assert (mine.st_mode & 0o777, mine.st_uid != 0 or os.geteuid() != 0) == (0o700, True)


def test_a_container_that_takes_too_much_memory_is_killed_and_it_says_so(bench: Bench) -> None:
    handle = bench.start(
        "print('ready', flush=True)\nhoard = []\nwhile True: hoard.append(bytearray(8_000_000))",
        limits=ContainerLimits(memory_bytes=64 * 1024**2),
    )
    assert bench.end(handle) == RunExit(code=137, reason="killed: memory limit of 64 MiB")


def test_stdout_and_stderr_are_told_apart_and_a_long_line_is_one(bench: Bench) -> None:
    handle = bench.start(
        "import sys\n"
        "print('out', flush=True)\n"
        "print('err', file=sys.stderr, flush=True)\n"
        "print('x' * 40_000, flush=True)\n"
        "print('last', flush=True)\n"
    )
    bench.end(handle)
    lines = bench.whole_log(handle)
    shown = [(line.source, line.text) for line in lines if len(line.text) < 100]
    assert sorted(shown) == [("stderr", "err"), ("stdout", "last"), ("stdout", "out")]
    assert [len(line.text) > 16_000 for line in lines].count(True) == 1
    assert all(abs(line.at - time.time()) < 3600 for line in lines)


def test_an_image_that_is_not_there_is_refused_with_its_name(bench: Bench) -> None:
    unknown = "sha256:" + "0" * 64
    spec = replace(bench.spec(SLEEPS), image=unknown, image_name="shop:1.0")
    with pytest.raises(CannotRun, match=r"shop:1\.0.*not on this host"):
        bench.runner.ready(spec)
    with pytest.raises(CannotRun, match="needs a host for local processes"):
        bench.runner.ready(replace(spec, image=""))


def test_the_digest_of_a_registry_is_no_id_of_an_image_here(bench: Bench) -> None:
    spec = bench.spec(SLEEPS)
    assert bench.runner.ready(replace(spec, image_name="crawlyard/shop/feeds:1.0"))
    with pytest.raises(CannotRun, match="not on this host"):
        bench.runner.ready(replace(spec, image_name="registry/shop:1.0"))
    away = replace(spec, image_name="127.0.0.1:9/shop:1.0")
    with pytest.raises(CannotRun, match="cannot be pulled"):
        until(lambda: bench.runner.ready(away), "the refusal")


def test_a_pull_that_fails_keeps_nobody_waiting_and_no_secret(bench: Bench) -> None:
    spec = replace(
        bench.spec(SLEEPS),
        image="sha256:" + "0" * 64,
        image_name="127.0.0.1:9/shop:1.0",
        registry=RegistryLogin("robot", "s3cret"),
    )
    assert "s3cret" not in repr(spec)
    with pytest.raises(CannotRun, match=r"127\.0\.0\.1:9/shop@sha256:0+ cannot be pulled") as told:
        until(lambda: bench.runner.ready(spec), "the refusal")
    assert "s3cret" not in str(told.value)


def test_a_container_that_was_made_and_not_started_is_started_by_the_next(
    bench: Bench, docker_engine: docker.DockerClient
) -> None:
    spec = bench.spec(SLEEPS)
    runner = bench.runner
    assert isinstance(runner, DockerRunner)
    created = runner._create(spec)
    where = {"run": 7, "boot": spec.boot, "folder": spec.folder}
    other = bench.make()
    assert not other.may_have_begun(**where)
    assert other.find(**where) is None
    handle = other.start(spec)
    assert handle.container == created["Id"]
    assert other.may_have_begun(**where)
    other.kill(handle)
    bench.end(handle)


def test_a_container_that_a_person_removed_is_not_started_again(
    bench: Bench, docker_engine: docker.DockerClient
) -> None:
    handle = bench.start(SLEEPS)
    docker_engine.containers.get(handle.container).remove(force=True)
    result = bench.end(handle)
    assert (result.code, result.reason) == (None, "its container was removed")
    where = {"run": 7, "boot": handle.boot, "folder": bench.folder / "7"}
    assert bench.runner.find(**where) is None
    assert bench.runner.may_have_begun(**where)


@pytest.mark.covers("S1.14")
def test_ended_containers_go_after_half_an_hour_and_unwanted_ones_are_ended(
    bench: Bench, docker_engine: docker.DockerClient
) -> None:
    ended, unknown, wanted = bench.start("pass"), bench.start(SLEEPS), bench.start(SLEEPS)
    bench.end(ended)
    elsewhere = bench.make(host="host-2")  # type: ignore[call-arg]
    assert isinstance(elsewhere, DockerRunner)
    now = datetime.now(UTC)
    assert elsewhere.tidy(now=now, known={}) == 0
    assert bench.runner.poll(unknown) is None, "it is another host's"
    known = {7: wanted.boot}
    assert bench.runner.tidy(now=now + timedelta(minutes=29), known=known) == 0
    assert bench.end(unknown).code == 137
    assert bench.runner.poll(wanted) is None
    assert bench.runner.tidy(now=now + timedelta(minutes=31), known=known) == 2
    left = docker_engine.containers.list(
        all=True, filters={"label": f"crawlyard.boot={ended.boot}", "name": "crawlyard-run-7-"}
    )
    assert left == []
    assert bench.runner.poll(wanted) is None
    assert bench.runner.tidy(now=now + timedelta(minutes=31), known={}) == 0, "ended just now"


# The SDK of Docker drops sockets that could not connect.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_engine_that_is_away_is_said_and_its_runs_are_found_when_it_is_back(
    bench: Bench, tmp_path: Path
) -> None:
    handle = bench.start(SLEEPS)
    socket = tmp_path / "engine.sock"
    runner = bench.make(url=f"unix://{socket}")  # type: ignore[call-arg]
    where = {"run": 7, "boot": handle.boot, "folder": bench.folder / "7"}
    for ask in (
        runner.engine,
        lambda: runner.poll(handle),
        lambda: runner.find(**where),
        lambda: runner.start(bench.spec(SLEEPS)),
        lambda: runner.tidy(now=datetime.now(UTC), known={}),
    ):
        with pytest.raises(RunnerAway, match="Docker does not answer"):
            ask()
    socket.symlink_to(SOCKET.removeprefix("unix://"))
    gc.collect()
    assert runner.poll(handle) is None
    found = runner.find(**where)
    assert found is not None
    runner.kill(found)
    bench.end(handle)
