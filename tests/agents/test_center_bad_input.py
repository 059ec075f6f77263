"""The center's queues with everything in them that is no message: set aside, and it goes on."""

from __future__ import annotations

import pytest
from django.conf import settings as config

from apps.agents.models import Agent
from apps.jobs.models import Run
from apps.jobs.states import RunState
from tests.agents.center_harness import REPLY, CenterHarness
from tests.agents.malformed_messages import BAD_BODIES
from tests.jobs.factories import make_run
from yardkit import topology
from yardkit.broker import Outgoing
from yardkit.protocol import (
    Allocate,
    Allocated,
    AllocateDownloader,
    DownloadCommand,
    DownloaderSettings,
    Heartbeat,
    encode,
)
from yardkit.tokens import sign_run_token

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault]

QUEUES = [
    topology.CENTER_REGISTER.name,
    topology.CENTER_CONTROL.name,
    topology.CENTER_REQUESTS.name,
    topology.center_heartbeats("c1").name,
]


@pytest.mark.covers("S1.24")
@pytest.mark.parametrize("queue", QUEUES)
def test_what_is_no_message_is_set_aside(
    harness: CenterHarness, run: Run, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name, body in BAD_BODIES.items():
        if name.startswith("too-long") and queue != topology.CENTER_REQUESTS.name:
            continue  # the reading is the same for all four, and once is enough
        harness.broker.publish([Outgoing(body=body, key=queue)]).result(30)
        reason = harness.refused()
        assert "not a message" in reason or "message version" in reason, name
        assert len(reason) < 1000, name
    assert f"refused a message of {queue}" in caplog.text
    # What is a message is answered all the same: Register, and Allocate, whose command comes.
    commands = harness.agent("a")
    assert harness.allocate(run).agents == ["a"]
    assert isinstance(harness.receive(commands), AllocateDownloader)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cpu_percent", float("nan")),
        ("qps", float("inf")),
        ("free_memory_bytes", 2**63),
        ("downloaders", -(2**63)),
        ("name", "\x00"),
        ("labels", {"\x00": "\x00"}),
        ("boot", "x" * 10_000),
        ("problems", ["\x00" * 100_000]),
    ],
)
def test_a_heartbeat_with_strange_values_harms_no_other(
    harness: CenterHarness, field: str, value: object
) -> None:
    harness.agent("a")
    harness.agent("b")
    for agent, changes in (("a", {field: value}), ("b", {"qps": 3.5})):
        fields = {
            "agent": agent, "name": agent, "boot": "1", "total_memory_bytes": 9,
            "free_memory_bytes": 5, "cpu_percent": 1.0, "downloaders": 0, "qps": 0.0,
        } | changes  # fmt: skip
        body = encode(Heartbeat(**fields))  # type: ignore[arg-type]
        harness.broker.publish([Outgoing(body=body, key="", exchange=topology.HEARTBEATS)]).result(
            10
        )
    harness.until(Agent.objects.filter(agent_id="b", qps=3.5).exists)


@pytest.mark.parametrize(
    "settings",
    [
        DownloaderSettings(timeout_seconds=float("nan")),
        DownloaderSettings(timeout_seconds=float("inf")),
        DownloaderSettings(cookies={"a": "\x00"}),
        DownloaderSettings(cookies={"a": "x" * 1_000_000}),
        DownloaderSettings(max_body_bytes=2**63),
    ],
    ids=["nan", "infinity", "nul", "long", "large"],
)
def test_strange_settings_are_given_to_the_agents_or_refused(
    harness: CenterHarness, run: Run, settings: DownloaderSettings
) -> None:
    """What the settings mean is the agents' to judge; the center neither hangs nor falls."""
    harness.agent("a")
    token = sign_run_token(config.SECRET_KEY, run.pk)
    message = Allocate(run=run.pk, token=token, reply_to=REPLY, settings=settings)
    harness.send(topology.CENTER_CONTROL.name, message)
    harness.until(lambda: harness.broker.depth(topology.CENTER_CONTROL.name).ready == 0)
    other = make_run(state=RunState.RUNNING)
    answers = [harness.allocate(other)]
    while answers[-1].run != other.pk:
        answer = harness.receive(REPLY)
        assert isinstance(answer, Allocated)
        answers.append(answer)
    told = [answer for answer in answers if answer.run == run.pk]
    assert told or harness.refused()


@pytest.mark.parametrize("sent_at", [float("nan"), float("inf"), float("-inf"), -1e308])
def test_a_batch_sent_at_no_time_harms_nobody(
    harness: CenterHarness, run: Run, sent_at: float
) -> None:
    queue = harness.agent("a")
    harness.allocate(run)
    assert isinstance(harness.receive(queue), AllocateDownloader)
    harness.download(run, sent_at=sent_at)
    other = make_run(state=RunState.RUNNING)
    harness.allocate(other)
    harness.download(other)
    runs = set()
    while other.pk not in runs:
        message = harness.receive(queue)
        if isinstance(message, DownloadCommand):
            runs.add(message.run)
