"""What matters most of an agent, once more on RabbitMQ: the same tests, another broker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.agents.downloader.test_agent import (  # noqa: F401 - collected here a second time
    test_allocate,
    test_answers_to_a_run_that_is_gone_are_dropped_at_once,
    test_commands_are_taken_a_few_at_a_time,
    test_exit_finishes_what_is_held,
    test_release,
    test_stop_gives_back_what_is_not_answered,
)
from tests.agents.downloader.test_allocations import (  # noqa: F401 - and these
    folder,
    quick,
    test_a_damaged_file_is_told_until_it_is_taken_away,
    test_an_agent_that_comes_back_knows_its_downloaders,
    test_the_last_of_many_commands_counts,
)
from tests.agents.downloader.test_bad_input import (  # noqa: F401 - and these
    test_strange_values_in_a_good_command_fail_what_they_are_in,
    test_what_is_no_command_is_set_aside,
)
from tests.agents.downloader.test_downloads import (  # noqa: F401 - and these
    test_a_run_without_downloader_gets_an_answer,
    test_download,
    test_large_bodies_are_compressed,
    test_old_commands_are_dropped,
)
from tests.agents.downloader.test_heartbeats import test_it_registers_and_says_that_it_is_alive  # noqa: F401 - and this one
from tests.agents.downloader.test_reports import (  # noqa: F401 - and these
    center,
    test_a_center_that_is_gone_is_no_failure,
    test_finished_requests_are_counted_by_host,
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
    topology.center_reports("c1"),
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
