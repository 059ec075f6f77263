"""Imported records as items of the source's dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from yardkit import topology
from yardkit.broker.base import Outgoing
from yardkit.items.batches import pack
from yardkit.protocol import BATCH_BYTES, ItemBatch, encode


def as_items(
    messages: Sequence[Outgoing], *, project_id: int, source: str, at: float
) -> list[Outgoing]:
    """Return messages for the queue of items with the records of some messages, in order.

    A batch that is published again after a crash has the same records: its name is made of their
    IDs, and of equal names the first is stored.
    """
    producer = f"source:{project_id}/{source}"
    items = []
    for part in _cut(messages):
        lines = [b'["",' + message.body + b"]" for message in part]
        packed, size = pack(lines)
        ids = "".join(str(message.message_id) for message in part)
        name = hashlib.blake2b(ids.encode(), digest_size=16).hexdigest()
        batch = ItemBatch(
            producer=producer,
            boot=name,
            first=1,
            count=len(part),
            lines=packed,
            raw_bytes=size,
            at=at,
            once=f"{producer}/{name}",
        )
        items.append(Outgoing(encode(batch), key=topology.ITEMS.name))
    return items


def _cut(messages: Sequence[Outgoing]) -> Iterator[list[Outgoing]]:
    part: list[Outgoing] = []
    size = 0
    for message in messages:
        if part and size + len(message.body) > BATCH_BYTES:
            yield part
            part, size = [], 0
        part.append(message)
        size += len(message.body)
    if part:
        yield part
