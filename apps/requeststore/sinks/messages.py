"""Records as confirmed messages of the platform's broker.

At least once: a request that is leased again sends its records again, with the same message IDs
(``<request id>-<position>``), by which a consumer detects duplicates. Records that are extracted
again from kept pages have others (``<request id>.<extraction>-<position>``).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

from apps.requeststore.sinks.base import RequestRecords, SinkUnavailable, as_message
from yardkit.broker import Broker, BrokerError, Outgoing, QueueSpec, Unroutable

CONFIRM_SECONDS: Final = 10.0
_AT_ONCE: Final = 1000


class QueueSink:
    """Publishes to one durable queue. ``ttl_seconds``: 0 keeps messages until they are
    consumed.
    """

    def __init__(self, broker: Broker, queue: str, *, ttl_seconds: float = 0) -> None:
        self._broker = broker
        self._spec = QueueSpec(queue)
        self._ttl_seconds = ttl_seconds or None
        self._declared = False

    def write(self, batch: Sequence[RequestRecords]) -> dict[int, str]:
        messages = [
            Outgoing(
                as_message(request_records, position),
                key=self._spec.name,
                ttl_seconds=self._ttl_seconds,
                message_id=f"{request_records.name}-{position}",
                content_type="application/json",
            )
            for request_records in batch
            for position in range(len(request_records.rows))
        ]
        try:
            if not self._declared:
                self._broker.declare(self._spec)
                self._declared = True
            for start in range(0, len(messages), _AT_ONCE):
                self._broker.publish(messages[start : start + _AT_ONCE]).result(CONFIRM_SECONDS)
        except Unroutable as error:
            # The queue was deleted.
            self._declared = False
            raise SinkUnavailable(f"records: {error}") from error
        except (BrokerError, FutureTimeoutError) as error:
            text = str(error) or "the broker did not confirm in time"
            raise SinkUnavailable(f"records: {text}") from error
        return {}

    def close(self) -> None:
        """Do nothing: the broker belongs to the process."""
