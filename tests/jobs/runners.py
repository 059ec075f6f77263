"""A runner in the test's own thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from apps.jobs.daemon import RunnerDaemon
from apps.jobs.models import Run
from apps.jobs.services import start_run
from tests.jobs.factories import NOW, make_job
from yardkit.broker import Broker
from yardkit.clock import SystemClock
from yardkit.stop import Stop


def make_runner(
    broker: Broker, tmp_path: Path, *, host: str = "host-1", stop: Stop | None = None
) -> RunnerDaemon:
    """One that has not been set up yet."""
    return RunnerDaemon(
        broker=broker,
        host=host,
        clock=SystemClock(),
        capacity=2,
        folder=tmp_path / "runs",
        stop=stop,
    )


def until(daemon: RunnerDaemon, run: Run, happened: Callable[[], bool]) -> None:
    """Let the runner work until something has happened; ``run`` is read again before each look."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        daemon.step()
        run.refresh_from_db()
        if happened():
            return
    pytest.fail(f"run is {run.state}: {run.reason}")


def start(spider: str) -> Run:
    """Queue a run of one of the spiders."""
    return start_run(job=make_job(spider=f"{spider}:Spider"), now=NOW, actor=None)
