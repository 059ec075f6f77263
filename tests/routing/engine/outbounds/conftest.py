"""Targets for the tests of outbounds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.routing.engine.outbounds import registry
from tests.routing.engine.outbounds.examples import examples
from tests.routing.engine.outbounds.kafka_cluster import KafkaCluster
from tests.routing.engine.outbounds.targets import (
    FileTarget,
    HttpTarget,
    KafkaTarget,
    RabbitTarget,
    RedisListTarget,
    RedisPriorityTarget,
    Target,
)

KINDS = [
    pytest.param("redis list", marks=pytest.mark.services),
    pytest.param("redis priority", marks=pytest.mark.services),
    pytest.param("rabbitmq", marks=pytest.mark.services),
    "kafka",
    "http",
    "file",
]


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """Kafka cluster of the session; each test has its own topics."""
    with contextlib.closing(KafkaCluster()) as cluster:
        yield cluster


@pytest.fixture
def own_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name of the outbound class from the documentation."""
    monkeypatch.setitem(registry._registered, "files.FileOutbound", examples()["FileOutbound"])


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path, own_class: None) -> Iterator[Target]:
    """Each kind of target in turn."""
    made: Target
    match request.param:
        case "redis list":
            made = RedisListTarget(request.getfixturevalue("redis_url"))
        case "redis priority":
            made = RedisPriorityTarget(request.getfixturevalue("redis_url"))
        case "rabbitmq":
            made = RabbitTarget(request.getfixturevalue("rabbit_vhost"))
        case "kafka":
            made = KafkaTarget(request.getfixturevalue("kafka_cluster"))
        case "http":
            made = HttpTarget()
        case _:
            made = FileTarget(tmp_path)
    with contextlib.closing(made):
        yield made
