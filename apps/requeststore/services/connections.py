"""Open storage nodes and queues of a process."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Mapping
from typing import Final

from django.conf import settings

from apps.requeststore.engine.errors import RequestStoreUnavailable, UnknownNode
from apps.requeststore.engine.placement import ShardPlace
from apps.requeststore.queues.base import RequestQueue
from apps.requeststore.queues.factory import open_queue
from apps.requeststore.services.bindings import BoundBiz
from apps.requeststore.services.shards import closed_until_of, note_shard
from apps.requeststore.stores.base import StorageNode
from apps.requeststore.stores.factory import open_node
from apps.runtime.queries import database_now
from apps.runtime.services import shared_broker
from yardkit.broker import Broker, BrokerError

logger = logging.getLogger(__name__)

# Interval (seconds) of checking a shard whose accounting is behind.
BEHIND_SECONDS: Final = 5.0


class Connections:
    """Opens nodes and queues at the first use. Thread-safe; a forked child opens its own."""

    def __init__(self, *, consumer: str) -> None:
        self._consumer = consumer
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._nodes = dict[str, StorageNode]()
        self._queues = dict[str, RequestQueue]()
        self._ensured = dict[ShardPlace, tuple[int, float]]()

    @property
    def urls(self) -> Mapping[str, str]:
        """Return the URL of every storage node, by name, from the current settings."""
        urls: Mapping[str, str] = settings.REQUESTS_NODES
        return urls

    def node(self, name: str) -> StorageNode:
        """Raises ``UnknownNode`` and ``BadSetting``."""
        with self._lock:
            self._mine()
            found = self._nodes.get(name)
            if found is None:
                url = self.urls.get(name)
                if url is None:
                    raise UnknownNode(f"REQUESTS_NODES of this process has no node {name}")
                found = self._nodes[name] = open_node(name, url)
            return found

    def queue(self, bound: BoundBiz) -> RequestQueue:
        """Return the shared queue of a biz. Raises ``RequestStoreUnavailable`` without the broker
        it needs.
        """
        with self._lock:
            self._mine()
            open_queue = self._queues.get(bound.queue_name)
        if open_queue is not None:
            return open_queue
        opened = self.open_queue(bound)
        with self._lock:
            # Another thread may have opened it meanwhile.
            open_queue = self._queues.setdefault(bound.queue_name, opened)
        if open_queue is not opened:
            opened.close()
        return open_queue

    def open_queue(self, bound: BoundBiz) -> RequestQueue:
        """Open the queue of a biz for one consumer, which closes it.

        Closing returns taken and prefetched entries. Raises ``RequestStoreUnavailable``.
        """
        return open_queue(
            bound.queue_name,
            redis_url=settings.REDIS_URL,
            redis_prefix=settings.REDIS_PREFIX,
            broker=self._broker(),
            consumer=self._consumer,
        )

    def ensure(self, bound: BoundBiz, place: ShardPlace) -> None:
        """Ensure that the shard exists, is in the accounting, and deletes at the right time.

        Remembers the answer, except for a shard whose accounting is behind: the server must not
        delete requests that are not counted yet, for example after the TTL was shortened. Raises
        ``RequestStoreUnavailable``.
        """
        seconds = bound.settings.delete_after_seconds
        known, until = self._ensured.get(place, (-1, 0.0))
        if known == seconds and time.monotonic() < until and self._pid == os.getpid():
            return
        # The row comes first: a shard without one would never be counted.
        note_shard(bound, place)
        open_for = database_now().timestamp() - closed_until_of(place) / 1000
        behind = open_for > seconds
        wanted = math.ceil(open_for) + bound.settings.keep_seconds if behind else seconds
        self.node(place.node).ensure(place.shard, delete_after_seconds=wanted)
        again = time.monotonic() + BEHIND_SECONDS if behind else math.inf
        self._ensured[place] = seconds, again

    def close(self) -> None:
        """Close everything; the next use opens it again."""
        with self._lock:
            mine = self._pid == os.getpid()
            opened: list[RequestQueue | StorageNode] = []
            if mine:
                opened = [*self._queues.values(), *self._nodes.values()]
            self._begin()
        for connection in opened:
            try:
                connection.close()
            except (RequestStoreUnavailable, BrokerError) as error:
                logger.warning("closing a store: %s", error)

    def _mine(self) -> None:
        if self._pid != os.getpid():
            self._begin()

    def _broker(self) -> Broker | None:
        try:
            return shared_broker()
        except BrokerError as error:
            if settings.REDIS_URL:
                # Without a broker, malformed entries go to a list beside the queue.
                return None
            raise RequestStoreUnavailable(f"the broker does not answer: {error}") from error
