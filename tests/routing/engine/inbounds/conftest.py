"""Sources for the contract test of inbounds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.routing.engine.inbounds.sources import (
    Factory,
    FileSource,
    KafkaSource,
    RabbitSource,
    RedisSource,
    Source,
)
from tests.yardkit.broker_proxy import Proxy

SOURCES = [
    pytest.param("redis", marks=pytest.mark.services),
    pytest.param("rabbit", marks=pytest.mark.services),
    pytest.param("kafka", marks=pytest.mark.kafka),
    "file",
]


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    """A queue, topic or file that only this test uses."""
    with contextlib.ExitStack() as stack:
        made: RedisSource | RabbitSource | KafkaSource | FileSource
        if request.param == "kafka":
            made = KafkaSource(request.getfixturevalue("kafka_cluster"))
        elif request.param == "file":
            made = FileSource(tmp_path)
        else:
            is_redis = request.param == "redis"
            url = request.getfixturevalue("redis_url" if is_redis else "rabbit_vhost")
            parts = urlsplit(url)
            host, port = parts.hostname or "127.0.0.1", parts.port
            proxy = stack.enter_context(Proxy(host, port or (6379 if is_redis else 5672)))
            made = RedisSource(url, proxy) if is_redis else RabbitSource(url, proxy)
        yield made
        made.close()


@pytest.fixture
def maker(source: Source, tmp_path: Path) -> Iterator[Factory]:
    """Factory of inbounds, which are closed before the source."""
    made = Factory(source, tmp_path)
    yield made
    made.close()
