"""Kafka outbound: keys, lag, and lazy loading of the client."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from apps.routing.engine import rules
from apps.routing.engine.outbounds import registry
from apps.routing.engine.outbounds.base import DELIVERED, SendStatus, Settings
from tests.routing.engine.outbounds.kafka_cluster import PARTITIONS, KafkaCluster
from tests.routing.engine.outbounds.targets import PATIENCE_SECONDS, KafkaTarget, sent
from tools.requirement_marks import ROOT


@pytest.fixture
def target(kafka_cluster: KafkaCluster) -> Iterator[KafkaTarget]:
    with contextlib.closing(KafkaTarget(kafka_cluster)) as made:
        yield made


def by_partition(target: KafkaTarget, number: int) -> dict[int, list[bytes | None]]:
    """Return the keys of this many messages by partition."""
    found: dict[int, list[bytes | None]] = {}
    left = number
    for _ in range(number + 100):
        message = target.consumer.poll(0.5)
        if message is not None and not message.error():
            found.setdefault(message.partition(), []).append(message.key())
            left -= 1
        if not left:
            return found
    raise AssertionError(f"{left} of {number} messages are missing")


@pytest.mark.slow("2 s")
def test_equal_keys_go_to_one_partition(target: KafkaTarget) -> None:
    outbound = target.make(key="city")
    batch = [sent(number, city=f"市{number % 20}") for number in range(200)]
    assert outbound.send(batch) == [DELIVERED] * 200
    found = by_partition(target, 200)
    assert len(found) > 1
    assert sum(len(set(keys)) for keys in found.values()) == 20


@pytest.mark.slow("1 s")
def test_a_key_is_found_in_wrapped_parameters_too(target: KafkaTarget) -> None:
    outbound = target.make(key="city")
    wrapped = sent(1, task_params={"city": "桂林"})
    assert outbound.send([wrapped, sent(2, city=5), sent(3)]) == [DELIVERED] * 3
    keys = [key for keys in by_partition(target, 3).values() for key in keys]
    assert sorted(keys, key=str) == sorted(["桂林".encode(), b"5", None], key=str)


@pytest.mark.slow("1 s")
def test_the_depth_is_the_lag_of_the_group(target: KafkaTarget) -> None:
    outbound = target.make()
    assert outbound.send([sent(number) for number in range(50)]) == [DELIVERED] * 50
    assert outbound.depth() == 50
    target.take_all(20)
    assert outbound.depth() == 30
    assert target.make(consumer_group=None).depth() is None


def test_the_lag_counts_from_the_first_message_that_is_kept(target: KafkaTarget) -> None:
    outbound = target.make()
    outbound.send([sent(number) for number in range(10)])
    positions = [TopicPartition(target.topic, number, 0) for number in range(PARTITIONS)]
    target.consumer.commit(offsets=positions, asynchronous=False)
    assert outbound.depth() == 10
    assert OFFSET_BEGINNING < 0


@pytest.mark.slow("1 s")
def test_a_message_too_large_for_the_client_fails_alone(target: KafkaTarget) -> None:
    settings = {**target.init()["producer_settings"], "message.max.bytes": 5000}
    outbound = target.make(producer_settings=settings)
    outcomes = outbound.send([sent(1), sent(2, text="x" * 6000), sent(3)])
    assert [one.verdict for one in outcomes] == ["delivered", "refused", "delivered"]
    assert outcomes[1].code == "too_large"
    assert [item["number"] for item in target.take_all(2)] == [1, 3]


def test_more_than_the_client_holds_at_once(target: KafkaTarget) -> None:
    settings = {**target.init()["producer_settings"], "queue.buffering.max.messages": 10}
    outbound = target.make(producer_settings=settings)
    assert outbound.send([sent(number) for number in range(300)]) == [DELIVERED] * 300


@pytest.mark.slow("2 s")
def test_nobody_there(target: KafkaTarget) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "sasl.password": "hunter2"}
    outbound = target.make(producer_settings=settings, timeout=1.0)
    for _ in range(PATIENCE_SECONDS):
        outcome = outbound.send([sent(1)])[0]
        assert outcome.verdict is SendStatus.AWAY
        assert "hunter2" not in outcome.reason
        if "127.0.0.1:1" in outcome.reason:
            break
    else:
        pytest.fail(f"no address in {outcome.reason}")
    assert outbound.depth() is None


def test_settings_that_the_client_refuses_are_refused_when_it_is_made(target: KafkaTarget) -> None:
    init = {**target.init(), "producer_settings": {"bootstrap.servers": "h:1", "nonsense": 1}}
    with pytest.raises(ValueError, match=r"producer_settings: .*nonsense"):
        registry.build(rules.Outbound("own", target.cls, init=init), Settings())


def test_the_client_is_loaded_only_when_it_is_used() -> None:
    code = (
        "import sys\n"
        "sys.modules['confluent_kafka'] = None\n"
        "from apps.routing.engine import rules\n"
        "from apps.routing.engine.outbounds import registry\n"
        "init = {'topic': 't', 'producer_settings': {'bootstrap.servers': 'h:1'}}\n"
        "rule = rules.Outbound('o', 'kafka.KafkaOutbound', init=init)\n"
        "print(*registry.check(rule), sep='|')\n"
        "assert not any(name.startswith('django') for name in sys.modules)\n"
    )
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pip install '.[kafka]'" in done.stdout
