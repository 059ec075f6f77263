"""The center's queues with everything in them that is no message: set aside, and it goes on."""

from __future__ import annotations

import pytest

from apps.agents.models import Agent
from apps.jobs.models import Run
from tests.agents.bad_bodies import BAD_BODIES
from tests.agents.yard import Yard
from yardkit import topology
from yardkit.broker import Outgoing
from yardkit.protocol import Heartbeat, encode

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.fault]

QUEUES = [
    topology.CENTER_REGISTER.name,
    topology.CENTER_CONTROL.name,
    topology.CENTER_REQUESTS.name,
    topology.center_heartbeats("c1").name,
]


@pytest.mark.parametrize("queue", QUEUES)
def test_what_is_no_message_is_set_aside(yard: Yard, run: Run, queue: str) -> None:
    for name, body in BAD_BODIES.items():
        if name.startswith("64-mib") and queue != topology.CENTER_REQUESTS.name:
            continue  # the reading is the same for all four, and once is enough
        yard.broker.publish([Outgoing(body=body, key=queue)]).result(30)
        reason = yard.refused()
        assert "not a message" in reason or "message version" in reason, name
        assert len(reason) < 1000, name
    yard.agent("a")
    assert yard.allocate(run).agents == ["a"]


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
    yard: Yard, field: str, value: object
) -> None:
    yard.agent("a")
    yard.agent("b")
    for agent, changes in (("a", {field: value}), ("b", {"qps": 3.5})):
        fields = {
            "agent": agent, "name": agent, "boot": "1", "total_memory_bytes": 9,
            "free_memory_bytes": 5, "cpu_percent": 1.0, "downloaders": 0, "qps": 0.0,
        } | changes  # fmt: skip
        body = encode(Heartbeat(**fields))  # type: ignore[arg-type]
        yard.broker.publish([Outgoing(body=body, key="", exchange=topology.HEARTBEATS)]).result(10)
    yard.until(Agent.objects.filter(agent_id="b", qps=3.5).exists)
