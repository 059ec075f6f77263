"""A run whose broker goes away under it: the real command, a real RabbitMQ, a cut connection."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.yardkit.broker_fixtures import wait_until
from tests.yardkit.broker_proxy import Proxy
from tests.yardspider.center import SmallCenter, small_center
from tests.yardspider.commands import command, environment
from tests.yardspider.test_remote import SITE, exit_state, tree, variables
from yardkit.protocol import AnyMessage, DownloadBatch

pytestmark = [pytest.mark.services, pytest.mark.fault]

PATIENCE_SECONDS = 60


@pytest.fixture
def proxy(rabbit_vhost: str) -> Iterator[Proxy]:
    parts = urlsplit(rabbit_vhost)
    with Proxy(parts.hostname or "127.0.0.1", parts.port or 5672) as made:
        yield made


@pytest.fixture
def center(rabbit_vhost: str) -> Iterator[SmallCenter]:
    with small_center(rabbit_vhost, tree) as small:
        yield small


@pytest.fixture
def crawl(
    rabbit_vhost: str, proxy: Proxy, center: SmallCenter, tmp_path: Path
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a run through the proxy; returns once its first request is at the center."""
    parts = urlsplit(rabbit_vhost)
    login, at, _ = parts.netloc.rpartition("@")
    url = urlunsplit(parts._replace(netloc=f"{login}{at}127.0.0.1:{proxy.port}"))
    processes = []

    def start(*settings: str) -> subprocess.Popen[str]:
        options = [word for setting in settings for word in ("--set", setting)]
        process = subprocess.Popen(
            command("run", SITE, *options),
            cwd=tmp_path,
            env=environment(**variables(url, tmp_path)),
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        center.wait_for(lambda: center.batches)
        return process

    center.on_batch = nothing
    yield start
    for process in processes:
        process.kill()
        process.communicate()


def nothing(batch: DownloadBatch) -> list[AnyMessage]:
    return []


@pytest.mark.covers("S1.42")
def test_a_broker_that_stays_away_ends_the_run_with_its_reason(
    crawl: Callable[..., subprocess.Popen[str]], proxy: Proxy, tmp_path: Path
) -> None:
    # Were it the requests' time-outs that ended it, the reason would be another.
    process = crawl("publish_retries=3", "request_timeout_seconds=1", "request_timeout_retries=1")
    proxy.shut()
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 2
    assert "Traceback" not in errors
    left = exit_state(tmp_path)
    assert left["state"] == "failed"
    assert re.fullmatch(
        r"the broker is gone: amqp://\S+ did not answer, tried 4 times", left["reason"]
    )
    assert f"run failed: {left['reason']}" in errors
    assert (left["left"], left["failed"]) == (1, 0)
    assert left["sent"] + left["retried"] == left["timed_out"] + left["cancelled"]


@pytest.mark.covers("S1.42")
def test_a_broker_that_comes_back_loses_nothing(
    crawl: Callable[..., subprocess.Popen[str]],
    proxy: Proxy,
    center: SmallCenter,
    tmp_path: Path,
) -> None:
    process = crawl("publish_retries=50", "request_timeout_seconds=2", "request_timeout_retries=2")
    proxy.shut()
    wait_until(lambda: proxy.refused > 3, "the run tries to come back")
    center.on_batch = center.download
    proxy.open()
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    left = exit_state(tmp_path)
    assert (left["state"], left["total"], left["success"]) == ("exited", 61, 61)
