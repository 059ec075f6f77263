"""The center, and what people have decided about its agents."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from apps.agents.downloader.commands import opened
from apps.agents.models import Agent
from apps.agents.services import switch_agent
from apps.agents.states import AgentMode
from apps.jobs.models import Job, Run
from tests.agents.center_harness import CenterHarness
from yardkit import topology
from yardkit.protocol import AllocateDownloader, DownloadCommand, Policy, Register, encode
from yardkit.seals import SealKey
from yardkit.secretbox import generate_key

pytestmark = pytest.mark.django_db(transaction=True)

BATCH = 20


@pytest.mark.covers("S1.36", "S1.59")
def test_an_agent_is_told_the_policy_and_when(harness: CenterHarness, run: Run) -> None:
    queue = harness.agent("a")
    before = time.time()
    harness.allocate(run)
    command = harness.receive(queue)
    assert isinstance(command, AllocateDownloader)
    assert command.policy == Policy.RANDOM
    assert before <= command.allocated_at <= time.time()


@pytest.mark.covers("S1.23")
def test_the_jobs_cookies_are_sealed_for_each_agent(harness: CenterHarness, run: Run) -> None:
    cookies = {"sid": "s3cret"}
    job = Job.objects.get(pk=run.job_id)
    job.cookies = json.dumps(cookies)
    job.save()
    keys = {"a": SealKey(), "b": SealKey()}
    queues = {name: harness.agent(name, seal_key=key.public) for name, key in keys.items()}
    older = harness.agent("older")
    harness.allocate(run)
    for name, key in keys.items():
        command = harness.receive(queues[name])
        assert isinstance(command, AllocateDownloader)
        assert b"s3cret" not in encode(command)
        assert opened(command, key).settings.cookies == cookies
    # An agent of an older version could open nothing.
    command = harness.receive(older)
    assert isinstance(command, AllocateDownloader)
    assert command.settings.cookies == cookies
    # One that starts again has another key, and is told anew.
    again = SealKey()
    harness.agent("a", boot="2", seal_key=again.public)
    command = harness.receive(queues["a"])
    assert isinstance(command, AllocateDownloader)
    assert opened(command, again).settings.cookies == cookies
    # Its key must be one.
    body = Register(
        agent="c", name="c", boot="1", processors=1, total_memory_bytes=1, seal_key=bytes(32)
    )
    harness.send(topology.CENTER_REGISTER.name, body)
    assert "nothing can be sealed for its key" in harness.refused()


def test_cookies_that_no_key_opens_refuse_the_run_and_say_so(
    harness: CenterHarness, run: Run, settings: Any
) -> None:
    job = Job.objects.get(pk=run.job_id)
    job.cookies = '{"sid": "s3cret"}'
    job.save()
    settings.SECRETBOX_KEYS = [generate_key()]
    harness.agent("a")
    assert "the cookies of the job cannot be opened" in harness.allocate(run).error


@pytest.mark.covers("S1.37")
def test_a_disabled_agent_gets_nothing_more_and_an_enabled_one_again(
    harness: CenterHarness, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.agents.daemon.REFRESH_SECONDS", 0.05)
    a = harness.agent("a")
    harness.agent("b")
    harness.allocate(run)
    assert isinstance(harness.receive(a), AllocateDownloader)
    other = Agent.objects.get(agent_id="b")
    assert share_of(harness, run, a) < BATCH
    switch_agent(agent=other, mode=AgentMode.DRAINING, actor=None, now=timezone.now())
    # Draining: it goes on with the run. Only disabled it gets nothing.
    assert share_of(harness, run, a) < BATCH
    switch_agent(agent=other, mode=AgentMode.DISABLED, actor=None, now=timezone.now())
    wait(lambda: share_of(harness, run, a) == BATCH)
    switch_agent(agent=other, mode=AgentMode.ENABLED, actor=None, now=timezone.now())
    wait(lambda: share_of(harness, run, a) < BATCH)


def share_of(harness: CenterHarness, run: Run, queue: str) -> int:
    """How many of a batch of requests come to this agent; all by chance is one in a million."""
    for name in ("a", "b"):
        # However slow this machine is: both are alive.
        harness.center.liveness.seen(name)
    # Its main thread is this one: the dispatch may be done before it had a turn.
    harness.center.step()
    harness.download(run)
    command = harness.receive(queue)
    assert isinstance(command, DownloadCommand)
    return len(command.items)


def wait(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
