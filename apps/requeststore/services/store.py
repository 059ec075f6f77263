"""Request store of a process: submit, take, finish and find requests.

bound = shared_request_store().biz(project_id, "news")
ids = shared_request_store().submit(bound, [Entity(url="https://example.com/")], by="rest", now=now)

A daemon makes its own with its identity, so that pages show its configuration version; web, worker
and router processes use the shared one.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Sequence

from django.db import connection

from apps.configcenter.services import ActiveVersion, ConfigWatcher
from apps.requeststore.engine.entity import Entity
from apps.requeststore.engine.errors import RequestStoreError, RequestStoreUnavailable, UnknownBiz
from apps.requeststore.engine.limits import MAX_TS
from apps.requeststore.engine.placement import ShardPlace
from apps.requeststore.queues.base import RequestQueue, TakenEntry
from apps.requeststore.services.bindings import BoundBiz, bind, bind_retired, bind_some
from apps.requeststore.services.connections import Connections
from apps.requeststore.services.ids import IdGenerator
from apps.requeststore.services.kind import KIND
from apps.requeststore.services.leases import LeaseService
from apps.requeststore.services.lookup import FoundRequest, RequestLookup, look_everywhere
from apps.requeststore.services.submission import Submission, check_room, checked, checked_ids
from apps.requeststore.stores.base import (
    EndCode,
    Finish,
    GiveBack,
    StorageNode,
    StoredRequest,
    Take,
)
from apps.runtime.daemon import Identity
from apps.runtime.errors import DATABASE_AWAY
from yardkit.clock import Clock, SystemClock

__all__ = [
    "BoundBiz",
    "FoundRequest",
    "RequestStore",
    "close_shared_request_store",
    "shared_request_store",
]

logger = logging.getLogger(__name__)


class RequestStore:
    """Request store of one process. Thread-safe. ``now`` is Unix ms everywhere.

    ``name`` identifies the process in histories and in Redis. ``setup`` and ``poll`` are called by
    one thread at a time; other methods may run meanwhile.
    """

    def __init__(
        self, *, name: str = "", identity: Identity | None = None, clock: Clock | None = None
    ) -> None:
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        clock = clock or SystemClock()
        self._clock = clock
        self._connections = Connections(consumer=self.name)
        self._looking = RequestLookup(self._connections)
        self._taking = LeaseService(self._connections, self._looking)
        self._ids = IdGenerator(clock=clock)
        self._lock = threading.Lock()
        self._bound = dict[int, dict[str, BoundBiz]]()
        self._retired = dict[int, dict[str, BoundBiz]]()
        self._follower = ConfigWatcher(kind=KIND, apply=self._apply, identity=identity, clock=clock)

    # --- configuration ----------------------------------------------------------------------------

    def setup(self) -> None:
        """Read the active configurations. Raises ``RequestStoreUnavailable``."""
        try:
            with self._lock:
                self._follower.setup()
        except DATABASE_AWAY as error:
            connection.close_if_unusable_or_obsolete()
            raise RequestStoreUnavailable("the database does not answer") from error

    def poll(self) -> bool:
        """Apply configuration changes and queue returned requests that are due. Cheap.

        Returns whether something happened; False at once while another thread polls.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            changed = self._follower.poll()
        finally:
            self._lock.release()
        return bool(self._taking.push_due(self.now())) or changed

    def wake(self) -> None:
        """Read the configuration at the next ``poll``."""
        self._follower.wake()

    @property
    def problems(self) -> dict[int, str]:
        """Return why the active version of a project is not running, by project."""
        return self._follower.problems

    def now(self) -> int:
        """Return the time of this process, in Unix ms."""
        return int(self._clock.time() * 1000)

    def biz(self, project_id: int, name: str) -> BoundBiz:
        """Raises ``UnknownBiz``."""
        bound = self._bound.get(project_id, {}).get(name)
        if bound is None:
            raise UnknownBiz(f"the project has no biz {name[:60]!r}")
        return bound

    def bizzes(self, project_id: int | None = None) -> list[BoundBiz]:
        """Return the configured bizzes of one or all projects, highest priority first."""
        return _sorted(self._bound, project_id)

    def retired(self, project_id: int | None = None) -> list[BoundBiz]:
        """Return bizzes that were removed from the configuration and still have requests."""
        return _sorted(self._retired, project_id)

    def _apply(self, project_id: int, active: ActiveVersion | None) -> None:
        try:
            bound = {} if active is None else bind(active, self._connections.urls)
        except RequestStoreError:
            if project_id not in self._bound and active is not None:
                # A new process has no previous version: one invalid biz must not keep the others
                # from being swept and counted.
                self._use(project_id, bind_some(active, self._connections.urls))
            raise
        self._use(project_id, bound)

    def _use(self, project_id: int, bound: dict[str, BoundBiz]) -> None:
        retired = bind_retired(project_id, bound, self._connections.urls)
        # Replaced atomically: other threads read it meanwhile.
        self._bound = {**self._bound, project_id: bound}
        self._retired = {**self._retired, project_id: retired}

    # --- stores -----------------------------------------------------------------------------------

    def node(self, name: str) -> StorageNode:
        """Return a storage node. Raises ``UnknownNode``."""
        return self._connections.node(name)

    def nodes(self) -> list[str]:
        """Return the names of all storage nodes."""
        return sorted(self._connections.urls)

    def queue(self, bound: BoundBiz) -> RequestQueue:
        """Return the shared queue of a biz. Raises ``RequestStoreUnavailable`` without the broker
        it needs.
        """
        return self._connections.queue(bound)

    def open_queue(self, bound: BoundBiz) -> RequestQueue:
        """Open the queue of a biz for one consumer, which closes it. Raises as ``queue``."""
        return self._connections.open_queue(bound)

    def ensure(self, bound: BoundBiz, place: ShardPlace) -> None:
        """Make a shard and its accounting row if missing. Raises ``RequestStoreUnavailable``."""
        self._connections.ensure(bound, place)

    # --- producers --------------------------------------------------------------------------------

    def reserve(self, count: int) -> list[int]:
        """Reserve IDs for ``submit``, which can then be repeated. Raises
        ``RequestStoreUnavailable``.
        """
        return self._ids.next_many(count)

    def check_room(self, bound: BoundBiz, wanted: int) -> None:
        """Raise ``BizFull`` when ``max_waiting`` is reached. Call it before ``submit``.

        Not for links that a fetcher finds: fetchers empty the queue.
        """
        check_room(bound, self._connections, wanted)

    def submit(
        self,
        bound: BoundBiz,
        entities: Sequence[Entity],
        *,
        by: str,
        now: int,
        ids: Sequence[int] | None = None,
        priority: int | None = None,
    ) -> list[int]:
        """Store requests, queue them, and note that; return their IDs in order.

        On return they are accepted: if the queue is unreachable, upkeep queues them within a
        minute. Call it outside of a transaction.

        Args:
            ids: reserved IDs; a repeat with the same IDs stores nothing twice.
            priority: None for that of the biz.

        Raises:
            BizDisabled, BadRequests: nothing was stored.
            SubmitInterrupted: some may be stored; repeat with its ``ids``.
            RequestStoreUnavailable: no IDs were made; nothing was stored.
        """
        data = checked(bound, entities, priority)
        numbers = checked_ids(ids, len(data)) if ids is not None else self._ids.next_many(len(data))
        if not numbers:
            return []
        submission = Submission(bound, self._connections, by=by, now=now)
        at = bound.settings.priority if priority is None else priority
        return submission.store(data, numbers, priority=at, again=ids is not None)

    # --- consumers --------------------------------------------------------------------------------

    def take(
        self, bound: BoundBiz, taken: Sequence[TakenEntry], *, owner: str, now: int
    ) -> list[Take]:
        """Lease the requests of queue entries for ``take_seconds``; one answer for each, in order.

        ``TAKEN``: leased to ``owner``. ``AWAY``: a node is unreachable, requeue the entry. With
        any other code the entry is obsolete.
        """
        return self._taking.take(
            bound, [taken_entry.entry for taken_entry in taken], owner=owner, now=now
        )

    def finish(
        self,
        bound: BoundBiz,
        done: Sequence[tuple[StoredRequest, Finish]],
        *,
        owner: str,
        now: int,
        counted: set[int] | None = None,
    ) -> list[EndCode]:
        """Set the final flags of leased requests; return a code for each.

        Args:
            counted: ids that earlier calls for the same ends have added to the rates. A caller
                that repeats a call after an error passes the same set again, so that an end whose
                answer was lost is counted, and counted once.

        Raises:
            RequestStoreUnavailable: a node did not answer. The ends on other nodes are stored,
                and the call may be repeated.
        """
        return self._taking.finish(bound, done, owner=owner, now=now, counted=counted)

    def give_back(
        self,
        bound: BoundBiz,
        back: Sequence[tuple[StoredRequest, GiveBack]],
        *,
        owner: str,
        now: int,
    ) -> list[EndCode]:
        """Return leased requests; ``poll`` of this process queues them at ``not_before``.

        If the process dies before that, upkeep queues them. Codes and errors as ``finish``.
        """
        return self._taking.give_back(bound, back, owner=owner, now=now)

    # --- look-up ----------------------------------------------------------------------------------

    def find(
        self, number: int, project_id: int | None = None, biz: str | None = None
    ) -> FoundRequest | None:
        """Find a request by its ID, in one project or all.

        Raises ``RequestStoreUnavailable``: not found, and some nodes are unreachable.
        """
        bizzes = [*self.bizzes(project_id), *self.retired(project_id)]
        if biz is not None:
            bizzes = [bound for bound in bizzes if bound.name == biz]
        return look_everywhere(self._looking, bizzes, number)

    def find_many(self, bound: BoundBiz, ids: Sequence[int]) -> dict[int, FoundRequest]:
        """Return the existing requests of a biz by ID. Raises ``RequestStoreUnavailable``."""
        return self._looking.many(bound, ids)

    def page(
        self,
        bound: BoundBiz,
        *,
        flag: int | None = None,
        since: int = 0,
        until: int = MAX_TS,
        after: tuple[int, int] | None = None,
        limit: int = 100,
    ) -> list[FoundRequest]:
        """Return requests of all shards, newest first by (ts, ID), before ``after``.

        Without data and steps. Raises ``RequestStoreUnavailable``.
        """
        return self._looking.page(
            bound, flag=flag, since=since, until=until, after=after, limit=limit
        )

    def close(self) -> None:
        """Queue returned requests, release the worker number, close all connections."""
        self._taking.push_due(None)
        self._ids.close()
        self._connections.close()


def _sorted(bound: dict[int, dict[str, BoundBiz]], project_id: int | None) -> list[BoundBiz]:
    projects = list(bound.values()) if project_id is None else [bound.get(project_id, {})]
    return sorted(
        (biz for named in projects for biz in named.values()),
        key=lambda each: (-each.settings.priority, each.project_id, each.name),
    )


class _SharedStore:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.request_store: RequestStore | None = None


_shared = _SharedStore()


def _forget_after_fork() -> None:
    # Connections and IDs belong to the parent process.
    global _shared
    _shared = _SharedStore()


os.register_at_fork(after_in_child=_forget_after_fork)


def shared_request_store() -> RequestStore:
    """Return the request store of a process that is not a daemon of this app; it polls when used.

    Raises ``RequestStoreUnavailable`` at the first use without the database.
    """
    shared = _shared
    request_store = shared.request_store
    if request_store is None:
        with shared.lock:
            if shared.request_store is None:
                made = RequestStore()
                made.setup()
                shared.request_store = made
            request_store = shared.request_store
    request_store.poll()
    return request_store


def close_shared_request_store() -> None:
    """Close the shared request store of this process, if open; the next use opens a new one."""
    shared = _shared
    with shared.lock:
        request_store, shared.request_store = shared.request_store, None
    if request_store is not None:
        request_store.close()
