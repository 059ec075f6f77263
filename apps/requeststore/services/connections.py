"""The storage nodes and queues that a process has open."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping

from django.conf import settings

from apps.requeststore.engine.errors import StoreUnavailable, UnknownNode
from apps.requeststore.engine.sharding import Place
from apps.requeststore.queues.base import RequestQueue
from apps.requeststore.queues.opening import open_queue
from apps.requeststore.services.binding import BoundBiz
from apps.requeststore.services.shards import note_shard
from apps.requeststore.stores.base import StorageNode
from apps.requeststore.stores.opening import open_node
from apps.runtime.services import shared_broker
from yardkit.broker import Broker, BrokerError

logger = logging.getLogger(__name__)


class Connections:
    """Opened at first use. Thread-safe; a forked child opens its own."""

    def __init__(self, *, consumer: str) -> None:
        self._consumer = consumer
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._nodes = dict[str, StorageNode]()
        self._queues = dict[str, RequestQueue]()
        self._ensured = dict[Place, int]()

    @property
    def urls(self) -> Mapping[str, str]:
        """Every storage node of this installation, by name."""
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
        """The queue of a biz. Raises ``StoreUnavailable`` when the broker it needs is away."""
        with self._lock:
            self._mine()
            found = self._queues.get(bound.queue_name)
        if found is not None:
            return found
        broker = self._broker()
        opened = open_queue(
            bound.queue_name,
            redis_url=settings.REDIS_URL,
            redis_prefix=settings.REDIS_PREFIX,
            broker=broker,
            consumer=self._consumer,
        )
        with self._lock:
            # Another thread may have been quicker.
            found = self._queues.setdefault(bound.queue_name, opened)
        if found is not opened:
            opened.close()
        return found

    def ensure(self, bound: BoundBiz, place: Place) -> None:
        """The shard exists, is known to the books, and deletes when it should.

        Asks nobody the second time. Raises ``StoreUnavailable``.
        """
        seconds = bound.settings.delete_after_seconds
        if self._ensured.get(place) == seconds and self._pid == os.getpid():
            return
        # First the row: a shard that holds something and is in no books would never be counted.
        note_shard(bound, place)
        self.node(place.node).ensure(place.shard, delete_after_seconds=seconds)
        self._ensured[place] = seconds

    def close(self) -> None:
        """Let go of everything; the next use opens it again."""
        with self._lock:
            mine = self._pid == os.getpid()
            opened: list[RequestQueue | StorageNode] = []
            if mine:
                opened = [*self._queues.values(), *self._nodes.values()]
            self._begin()
        for each in opened:
            try:
                each.close()
            except (StoreUnavailable, BrokerError) as error:
                logger.warning("closing a store: %s", error)

    def _mine(self) -> None:
        if self._pid != os.getpid():
            self._begin()

    def _broker(self) -> Broker | None:
        try:
            return shared_broker()
        except BrokerError as error:
            if settings.REDIS_URL:
                # It would only take the junk, for which there is a list beside the queue.
                return None
            raise StoreUnavailable(f"the broker does not answer: {error}") from error
