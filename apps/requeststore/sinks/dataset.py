"""Records as items of the biz's dataset, through the queue of items."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final

from apps.requeststore.sinks.base import RequestRecords, SinkUnavailable, as_json, clean
from yardkit import topology
from yardkit.broker import Broker, BrokerError, Outgoing
from yardkit.items.batches import pack
from yardkit.protocol import MAX_ITEM_BYTES, ItemBatch, encode

CONFIRM_SECONDS: Final = 10.0
_AT_ONCE: Final = 1000
# Fields of an item beside the record's: name of the rule, meta data of the request.
RULE: Final = "_rule"
META: Final = "_meta"


def incarnation(name: object) -> str:
    """Return the incarnation of a request's items; their numbers are the positions plus one."""
    return f"r{name}"


class DatasetSink:
    """Publishes one batch for each request, named by the request: of repeats the first is stored.

    ``producer``: ``biz:<project>/<name>``.
    """

    def __init__(self, broker: Broker, producer: str) -> None:
        self._broker = broker
        self._producer = producer

    def write(self, batch: Sequence[RequestRecords]) -> dict[int, str]:
        refused: dict[int, str] = {}
        messages = []
        for request_records in batch:
            if request_records.rows:
                lines = [
                    as_json([clean(request_records.url), _item(request_records, row)])
                    for row in request_records.rows
                ]
                largest = max(map(len, lines))
                if largest > MAX_ITEM_BYTES:
                    refused[request_records.request_id] = (
                        f"a record of {largest} bytes; at most {MAX_ITEM_BYTES}"
                    )
                else:
                    messages.append(self._message(request_records, lines))
        try:
            for start in range(0, len(messages), _AT_ONCE):
                self._broker.publish(messages[start : start + _AT_ONCE]).result(CONFIRM_SECONDS)
        except (BrokerError, FutureTimeoutError) as error:
            text = str(error) or "the broker did not confirm in time"
            raise SinkUnavailable(f"records: {text}") from error
        return refused

    def close(self) -> None:
        """Do nothing: the broker belongs to the process."""

    def _message(self, one: RequestRecords, lines: list[bytes]) -> Outgoing:
        packed, size = pack(lines)
        message = ItemBatch(
            producer=self._producer,
            boot=incarnation(one.name),
            first=1,
            count=len(lines),
            lines=packed,
            raw_bytes=size,
            at=one.fetched_at / 1000,
            once=f"{self._producer}/{one.name}",
        )
        return Outgoing(encode(message), key=topology.ITEMS.name)


class BothSinks:
    """Two destinations of the same records; a request is stored when both have it."""

    def __init__(self, *sinks: Any) -> None:
        self._sinks = sinks

    def write(self, batch: Sequence[RequestRecords]) -> dict[int, str]:
        refused: dict[int, str] = {}
        for sink in self._sinks:
            refused |= sink.write(batch)
        return refused

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


def _item(one: RequestRecords, row: Any) -> dict[str, Any]:
    item = {**clean(row), RULE: one.rule}
    return item | {META: clean(one.meta)} if one.meta else item
