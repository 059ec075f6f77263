"""Dead-letters queue entries that no consumer can use."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as ConfirmTimeout
from typing import Final

from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.queues.dead_letters import BrokerDeadLetters
from apps.requeststore.queues.entries import write_entry
from apps.requeststore.queues.factory import broker_queue_name, redis_key
from apps.requeststore.services.store import BoundBiz
from apps.requeststore.stores.base import QueueEntry
from yardkit.broker import Broker, BrokerError, Outgoing
from yardkit.broker.base import DEAD_QUEUE
from yardkit.broker.deadletters import dead_headers

CONFIRM_SECONDS: Final = 10.0


def dead_letter_function(
    bound: BoundBiz, broker: Broker, redis_prefix: str
) -> Callable[[QueueEntry, str], None]:
    """Return a function that dead-letters an entry of this biz with a reason.

    ``redis_prefix`` is "" where the broker holds the queue. The function raises
    ``RequestStoreUnavailable``.
    """
    if redis_prefix:
        in_redis = BrokerDeadLetters(broker, project_id=bound.project_id)
        key = redis_key(redis_prefix, bound.queue_name)
        return lambda entry, reason: in_redis(key, write_entry(entry), reason)
    queue = broker_queue_name(bound.queue_name)

    def dead_letter(entry: QueueEntry, reason: str) -> None:
        headers = dead_headers({}, reason=reason, queue=queue, died_at=time.time())
        try:
            letter = Outgoing(write_entry(entry), key=DEAD_QUEUE, headers=headers)
            broker.publish([letter]).result(CONFIRM_SECONDS)
        except (BrokerError, ConfirmTimeout) as error:
            raise RequestStoreUnavailable(f"a dead letter could not be kept: {error}") from error

    return dead_letter
