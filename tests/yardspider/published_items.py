"""Items of runs on their way to the platform."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from yardkit import topology
from yardkit.broker import connect
from yardkit.items.batches import read_batch
from yardkit.protocol import FileChunk, ItemBatch, decode


def published_items(broker_url: str, files: set[str] | None = None) -> list[dict[str, Any]]:
    """Take all items out of the queue; each number of an execution comes once.

    Names of files are added to ``files``.
    """
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    with (
        closing(connect(broker_url, name="reader")) as broker,
        closing(broker.subscribe(topology.ITEMS.name, prefetch=1000)) as subscription,
    ):
        while deliveries := subscription.take(1000, timeout=2):
            for delivery in deliveries:
                batch = decode(delivery.body)
                if isinstance(batch, FileChunk):
                    (set() if files is None else files).add(batch.name)
                    continue
                assert isinstance(batch, ItemBatch)
                for number, item in enumerate(read_batch(batch), batch.first):
                    found[batch.producer, batch.boot, number] = item.data
            subscription.ack(deliveries)
    return list(found.values())
