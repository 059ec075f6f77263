"""A paused run whose broker goes away and comes back: the real command, a real broker."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.yardspider.center import SmallCenter
from tests.yardspider.commands import command, environment
from tests.yardspider.test_broker_lost import PATIENCE_SECONDS, Outage, center, outage
from tests.yardspider.test_lifecycle_remote import TOPIC, Jobs
from tests.yardspider.test_remote import SITE, exit_state, variables
from yardkit.broker import BrokerError, connect
from yardkit.protocol import RunAction

__all__ = ["center", "outage"]

pytestmark = pytest.mark.fault


@pytest.fixture
def jobs(outage: Outage, center: SmallCenter) -> Iterator[Jobs]:
    broker = connect(outage.center_url, name="jobs")
    yield Jobs(broker)
    broker.close()


def tell(jobs: Jobs, action: RunAction) -> None:
    """As the outbox does: again until the broker takes it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            jobs.tell(action, boot="b1")
        except BrokerError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        else:
            return


@pytest.mark.covers("S1.9", "S1.11")
def test_a_paused_run_is_still_paused_and_still_hears_when_its_broker_is_back(
    outage: Outage, center: SmallCenter, jobs: Jobs, tmp_path: Path
) -> None:
    center.on_batch = center.download
    told = {"CRAWLYARD_BOOT": "b1", "CRAWLYARD_TOPIC": TOPIC}
    process = subprocess.Popen(
        command("run", SITE, "--set", "speed=20", "--set", "publish_retries=50"),
        cwd=tmp_path,
        env=environment(**variables(outage.url, tmp_path, **told)),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        center.wait_for(lambda: len(center.items) >= 5)
        tell(jobs, RunAction.PAUSE)
        assert jobs.answer().accepted
        sent = len(center.items)
        assert process.stderr is not None
        outage.begin()
        # Reads until the run says that it has lost its broker.
        assert any("WARNING" in line and " lost " in line for line in process.stderr)
        outage.end()
        # Heard again, it says the same: it is paused.
        tell(jobs, RunAction.PAUSE)
        assert jobs.answer().accepted
        assert len(center.items) == sent
        tell(jobs, RunAction.RESUME)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.communicate()
    left = exit_state(tmp_path)
    assert (left["state"], left["total"], left["success"]) == ("exited", 61, 61)
