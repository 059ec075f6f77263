"""What matters most of an agent, once more on RabbitMQ: the same tests, another broker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.agents.downloader.test_agent import (  # noqa: F401 - collected here a second time
    test_allocate,
    test_answers_to_a_run_that_is_gone_are_dropped_at_once,
    test_bad_messages_become_dead_letters,
    test_commands_are_taken_a_few_at_a_time,
    test_exit_finishes_what_is_held,
    test_it_registers_and_says_that_it_is_alive,
    test_release,
    test_stop_gives_back_what_is_not_answered,
)
from tests.agents.downloader.test_downloads import (  # noqa: F401 - and these
    test_a_run_without_downloader_gets_an_answer,
    test_download,
    test_large_bodies_are_compressed,
    test_old_commands_are_dropped,
)
from yardkit import topology
from yardkit.broker import Broker, BrokerError, connect
from yardkit.broker.base import DEAD_QUEUE

pytestmark = pytest.mark.services

OWN = (
    topology.agent_commands("agent-1"),
    topology.run_answers(7, "boot"),
    topology.run_answers(8, "boot"),
    topology.center_heartbeats("test"),
)


@pytest.fixture
def broker(rabbit_vhost: str) -> Iterator[Broker]:
    broker = connect(rabbit_vhost, name="test")
    for queue in (DEAD_QUEUE, topology.CENTER_REGISTER.name):
        with contextlib.suppress(BrokerError):
            broker.purge(queue)
    yield broker
    for spec in OWN:
        with contextlib.suppress(BrokerError):
            broker.delete(spec.name)
    broker.close()
