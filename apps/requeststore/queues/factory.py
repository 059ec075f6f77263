"""Opens the queue that the settings demand: in Redis where configured, else in the broker."""

from __future__ import annotations

import re
from typing import Final

from apps.requeststore.engine.errors import BadSetting
from apps.requeststore.queues.base import RequestQueue
from apps.requeststore.queues.broker_queue import BrokerRequestQueue
from apps.requeststore.queues.dead_letters import BrokerDeadLetters
from yardkit.broker.base import Broker

# Format of ``engine.sharding.queue_of``; the project owns the dead letters.
_OF_PROJECT: Final = re.compile(r"p([1-9][0-9]{0,17})\.")


def redis_key(prefix: str, name: str) -> str:
    """Return the key of the Redis list for the queue ``name``."""
    return f"{prefix}:requests:{name}"


def broker_queue_name(name: str) -> str:
    """Return the broker's name of the queue ``name``."""
    return f"requests.{name}"


def open_queue(
    name: str,
    *,
    redis_url: str = "",
    redis_prefix: str = "crawlyard",
    broker: Broker | None = None,
    consumer: str = "",
) -> RequestQueue:
    """Open the queue ``name`` (``p7.news``): in Redis if ``redis_url`` is set, else in ``broker``.

    ``consumer`` identifies the owner of taken entries in Redis; queues of one URL share
    connections. Malformed entries become dead letters of the broker, or go to a list beside the
    queue without one. Connects at the first use. Raises ``BadSetting``.
    """
    if redis_url:
        # Imported on demand: the client is slow to load, and many installations have no Redis.
        from apps.requeststore.queues.redis_list import RedisListQueue
        from yardkit.redis_server import shared_server

        dead_letter = None
        if broker is not None:
            of_project = _OF_PROJECT.match(name)
            dead_letter = BrokerDeadLetters(
                broker, project_id=int(of_project[1]) if of_project else None
            )
        try:
            server = shared_server(redis_url)
        except ValueError as error:
            raise BadSetting(f"REDIS_URL: {error}") from None
        return RedisListQueue(
            server,
            redis_key(redis_prefix, name),
            consumer=consumer or "process",
            dead_letter=dead_letter,
        )
    if broker is None:
        raise ValueError("a queue needs a Redis or a broker")
    return BrokerRequestQueue(broker, broker_queue_name(name))
