"""Depths of the broker's queues, and what daemons have finished, from a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.agents.models import Agent
from apps.runtime.models import Daemon
from apps.runtime.services import close_shared_broker, register_daemon, shared_broker
from apps.runtime.services import depths as module
from apps.runtime.services.depths import broker_answers, broker_readings
from yardkit import queues, topology
from yardkit.broker import BrokerUnavailable, Outgoing, traffic
from yardkit.questions import Question
from yardkit.queues import QueueReading, QueueRegistry

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_asker", Question(module._ask, fresh_seconds=-1, name="depths"))


@pytest.fixture(params=["sqlite", pytest.param("rabbitmq", marks=pytest.mark.services)])
def broker(request: pytest.FixtureRequest, settings: Any) -> Iterator[str]:
    close_shared_broker()
    if request.param == "sqlite":
        settings.BROKER_URL = request.getfixturevalue("sqlite_broker_url")
    else:
        settings.BROKER_URL = request.getfixturevalue("new_rabbit_vhost")
    yield request.param
    close_shared_broker()


def by_name() -> dict[str, QueueReading]:
    return {each.name: each for each in broker_readings()}


@pytest.mark.slow("45 s")
@pytest.mark.covers("S4.24")
def test_every_queue_of_the_broker_is_read(broker: str) -> None:
    shared = shared_broker()
    agent = Agent.objects.create(agent_id="a1")
    shared.declare(topology.agent_commands(agent.agent_id))
    shared.publish([Outgoing(body=b"x", key=topology.RUNNERS.name)] * 3).result(10)
    subscription = shared.subscribe(topology.STATISTICS.name)
    found = by_name()
    subscription.close()
    assert {spec.name for spec in topology.SHARED} <= found.keys()
    runners, agents = found[topology.RUNNERS.name], found["agent.a1"]
    assert (runners.engine, runners.waiting, runners.readers) == (broker, 3, 0)
    assert (agents.waiting, agents.project) == (0, None)
    assert found[topology.STATISTICS.name].readers == 1
    assert broker_answers()


def test_what_daemons_finish_is_counted(broker: str) -> None:
    shared = shared_broker()
    before = traffic.counts().get(topology.SEEDS.name, 0)
    shared.publish([Outgoing(body=b"x", key=topology.SEEDS.name)] * 5).result(10)
    subscription = shared.subscribe(topology.SEEDS.name)
    taken = subscription.take(5, timeout=10)
    while len(taken) < 5:
        taken += subscription.take(5, timeout=10)
    subscription.ack(taken[:3])
    subscription.dead_letter(taken[3], "bad")
    subscription.requeue(taken[4:])
    subscription.close()
    assert traffic.counts()[topology.SEEDS.name] - before == 4


def test_daemons_tell_it_with_their_heartbeats(broker: str) -> None:
    shared_broker()
    for name, count in (("one", 100), ("two", 11)):
        register_daemon(
            kind="seeds",
            name=name,
            boot=name,
            host="h",
            pid=1,
            state="running",
            detail={"settled": {"seeds": count}, "steps": 1},
        )
    first = by_name()["seeds"]
    assert first.out_total == 111
    Daemon.objects.filter(name="two").update(boot="again", detail={"settled": {"seeds": 2}})
    second = by_name()["seeds"]
    assert second.out_total == 102
    # One of them began anew: nothing follows from the difference.
    assert first.epoch != second.epoch
    assert by_name()["logs"].out_total is None


def test_tasks_that_wait_as_files_are_counted(settings: Any, tmp_path: Path) -> None:
    settings.CELERY_BROKER_TRANSPORT_OPTIONS = {"data_folder_in": str(tmp_path)}
    for number in range(3):
        (tmp_path / f"{number}_x.{topology.BUILDS}.msg").touch()
    found = {each.name: each for each in module._celery_files()}
    assert (found[topology.BUILDS].engine, found[topology.BUILDS].waiting) == ("files", 3)
    assert found[topology.TASKS].waiting == 0


def test_a_broker_that_is_away_hides_no_other_queue(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(**_options: Any) -> Any:
        raise BrokerUnavailable("gone")

    monkeypatch.setattr(module, "shared_broker", away)
    assert not broker_answers()
    registry = QueueRegistry()
    registry.register("broker", broker_readings)
    registry.register("mine", lambda: [QueueReading(name="mine", engine="x")])
    for _ in range(3):
        assert [each.name for each in registry.snapshot()] == ["mine"]
    assert len([each for each in caplog.records if "cannot read the queues" in each.message]) == 1


def test_every_app_with_queues_has_registered() -> None:
    assert set(queues._registry._reads) == {"broker", "requests", "routing"}
