"""Parameters of inbound and outbound classes, to distinguish them from other keys of ``init``.

All other keys of ``init`` are common parameters of outbounds or constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# Returns the parameter names of a class; None or a LookupError means that it is unknown.
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
    """Return the parameters of a class that the platform ships, or None for any other class."""
    return _KNOWN.get(cls)
