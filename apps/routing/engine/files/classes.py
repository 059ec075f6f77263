"""Which keys below ``init`` are a class's own: what else stands there is common, or a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# None: there is no such class here. A LookupError says the same.
ClassParameters = Callable[[str], "frozenset[str] | None"]

_KNOWN: Final[dict[str, frozenset[str]]] = {
    "redis_queue.RedisListOutbound": frozenset({"url", "key"}),
    "redis_queue.RedisPriorityOutbound": frozenset({"url", "key"}),
    "rabbitmq.RabbitQueueOutbound": frozenset({"url", "queue", "max_priority", "declare"}),
    "kafka.KafkaOutbound": frozenset({"topic", "producer_settings", "key", "consumer_group"}),
    "http.HttpOutbound": frozenset({"url", "headers", "batch", "concurrency"}),
    "kafka.KafkaInbound": frozenset({"consumer_settings", "topics"}),
    "redis_queue.RedisListInbound": frozenset({"url", "key", "lease_seconds"}),
    "rabbitmq.RabbitInbound": frozenset({"url", "queue", "declare"}),
}


def known_parameters(cls: str) -> frozenset[str] | None:
    """Those of the classes that come with the platform."""
    return _KNOWN.get(cls)
