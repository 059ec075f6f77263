"""Enabled, draining, disabled, and told to leave."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from apps.access.models import AuditRecord
from apps.agents.errors import AgentNotAlive
from apps.agents.models import Agent
from apps.agents.services import exit_agent, switch_agent
from apps.agents.services.modes import EXIT_TTL_SECONDS
from apps.agents.states import AgentMode
from apps.runtime.models import OutboxMessage
from tests.access.factories import make_superuser
from tests.agents.factories import make_agent
from tests.jobs.factories import NOW
from yardkit.protocol import ExitAgent, decode

pytestmark = pytest.mark.django_db


def test_each_switch_is_on_the_trail_once() -> None:
    boss = make_superuser()
    agent = make_agent(qps=7.0)
    stale = Agent.objects.get(pk=agent.pk)
    Agent.objects.filter(pk=agent.pk).update(qps=9.0)
    for mode, changed in [
        (AgentMode.ENABLED, False),
        (AgentMode.DRAINING, True),
        (AgentMode.DRAINING, False),
        (AgentMode.DISABLED, True),
        (AgentMode.ENABLED, True),
    ]:
        assert switch_agent(agent=stale, mode=mode, actor=boss, now=NOW) is changed
        agent.refresh_from_db()
        assert (agent.mode, stale.mode, agent.qps) == (mode, mode, 9.0)
    assert agent.switched_at == NOW
    trail = AuditRecord.objects.filter(object_type="agents.agent").order_by("id")
    assert [(one.action, one.before, one.after) for one in trail] == [
        ("agents.drain_agent", {"mode": "enabled"}, {"mode": "draining"}),
        ("agents.disable_agent", {"mode": "draining"}, {"mode": "disabled"}),
        ("agents.enable_agent", {"mode": "disabled"}, {"mode": "enabled"}),
    ]


def test_the_database_knows_the_modes() -> None:
    agent = make_agent()
    with pytest.raises(IntegrityError), transaction.atomic():
        Agent.objects.filter(pk=agent.pk).update(mode="asleep")


@pytest.mark.covers("S1.23")
def test_an_exit_goes_to_the_agents_own_queue_and_is_void_soon() -> None:
    agent = make_agent(heartbeat_at=NOW)
    exit_agent(agent=agent, reason="new kernel", actor=make_superuser(), now=NOW)
    message = OutboxMessage.objects.get()
    assert (message.exchange, message.key) == ("", f"agent.{agent.agent_id}")
    assert decode(bytes(message.body)) == ExitAgent(reason="new kernel")
    # A supervisor starts an agent again within seconds; that one must stay.
    assert message.ttl_seconds == EXIT_TTL_SECONDS <= 15
    entry = AuditRecord.objects.get(action="agents.exit_agent")
    assert (entry.object_id, entry.note) == (str(agent.pk), "new kernel")


@pytest.mark.parametrize("silent", [timedelta(seconds=11), None])
def test_a_silent_agent_cannot_be_told_to_exit(silent: Any) -> None:
    agent = make_agent(name="north", heartbeat_at=NOW - silent if silent else None)
    with pytest.raises(AgentNotAlive, match="north is not alive"):
        exit_agent(agent=agent, reason="", actor=None, now=NOW)
    assert not OutboxMessage.objects.exists()
    assert not AuditRecord.objects.exists()


def test_an_exit_that_is_rolled_back_tells_nobody() -> None:
    agent = make_agent(heartbeat_at=NOW)
    with transaction.atomic():
        exit_agent(agent=agent, reason="", actor=None, now=NOW)
        transaction.set_rollback(True)
    assert not OutboxMessage.objects.exists()
    assert not AuditRecord.objects.exists()
