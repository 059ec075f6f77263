"""A run whose broker goes away under it: the real command, a broker that can be taken away."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.yardkit.broker_proxy import Proxy
from tests.yardspider.center import SmallCenter, small_center
from tests.yardspider.commands import command, environment
from tests.yardspider.test_remote import SITE, exit_state, tree, variables
from yardkit.protocol import AnyMessage, DownloadBatch

pytestmark = pytest.mark.fault

PATIENCE_SECONDS = 60


class Outage(Protocol):
    """A broker at ``url`` (the run's) and ``center_url`` that can be away."""

    url: str
    center_url: str

    def begin(self) -> None: ...

    def end(self) -> None: ...


class CutConnection:
    """RabbitMQ behind a proxy; only the run goes through it."""

    def __init__(self, rabbit_vhost: str) -> None:
        parts = urlsplit(rabbit_vhost)
        self.proxy = Proxy(parts.hostname or "127.0.0.1", parts.port or 5672)
        login, at, _ = parts.netloc.rpartition("@")
        self.url = urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{self.proxy.port}"))
        self.center_url = rabbit_vhost
        self.begin, self.end = self.proxy.shut, self.proxy.open


class MovedFolder:
    """A broker file whose folder is moved away, with a file left in its place."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder, self.moved = tmp_path / "broker", tmp_path / "moved"
        self.folder.mkdir()
        self.url = self.center_url = f"sqlite:///{self.folder}/broker.db"

    def begin(self) -> None:
        self.folder.rename(self.moved)
        self.folder.write_text("no folder")

    def end(self) -> None:
        self.folder.unlink()
        self.moved.rename(self.folder)


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.twin),
        pytest.param("rabbitmq", marks=pytest.mark.services),
    ]
)
def outage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outage]:
    if request.param == "sqlite":
        yield MovedFolder(tmp_path)
        return
    connection = CutConnection(request.getfixturevalue("rabbit_vhost"))
    with connection.proxy:
        yield connection


@pytest.fixture
def center(outage: Outage) -> Iterator[SmallCenter]:
    with small_center(outage.center_url, tree) as small:
        small.on_batch = nothing
        yield small


def nothing(batch: DownloadBatch) -> list[AnyMessage]:
    return []


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(outage: Outage, center: SmallCenter, tmp_path: Path) -> Iterator[Start]:
    """Start a run; it returns once the first request is at the center."""
    processes = []

    def run(*settings: str) -> subprocess.Popen[str]:
        options = [word for setting in settings for word in ("--set", setting)]
        process = subprocess.Popen(
            command("run", SITE, *options),
            cwd=tmp_path,
            env=environment(**variables(outage.url, tmp_path)),
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        center.wait_for(lambda: center.batches)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.covers("S1.42")
def test_a_broker_that_stays_away_ends_the_run_with_its_reason(
    start: Start, outage: Outage, tmp_path: Path
) -> None:
    # Were it the requests' time-outs that ended it, the reason would be another.
    process = start("publish_retries=3", "request_timeout_seconds=1", "request_timeout_retries=1")
    outage.begin()
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 2
    assert "Traceback" not in errors
    left = exit_state(tmp_path)
    assert left["state"] == "failed"
    assert re.fullmatch(r"the broker is gone: \S+ did not answer, tried 4 times", left["reason"])
    assert f"run failed: {left['reason']}" in errors
    assert (left["left"], left["failed"]) == (1, 0)
    assert left["sent"] + left["retried"] == left["timed_out"] + left["cancelled"]


@pytest.mark.covers("S1.42")
def test_a_broker_that_comes_back_loses_nothing(
    start: Start, outage: Outage, center: SmallCenter, tmp_path: Path
) -> None:
    process = start("publish_retries=50", "request_timeout_seconds=2", "request_timeout_retries=2")
    assert process.stderr is not None
    outage.begin()
    # Reads until the run says that it has lost its broker.
    assert any("WARNING" in line and " lost " in line for line in process.stderr)
    center.on_batch = center.download
    outage.end()
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    left = exit_state(tmp_path)
    assert (left["state"], left["total"], left["success"]) == ("exited", 61, 61)
