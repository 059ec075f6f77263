"""The yard: everything a process needs to store, hand out, end and find requests (seed S4.30).

    bound = shared_yard().biz(project_id, "news")
    ids = shared_yard().submit(bound, [Entity(url="https://example.com/")], by="rest", now=now)

A daemon makes a ``Yard`` of its own with its identity, so that pages show which version it runs;
web, worker and router processes use ``shared_yard()``.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Sequence

from django.db import connection

from apps.configcenter.services import Active, Follower
from apps.requeststore.engine.entity import Entity
from apps.requeststore.engine.errors import RequestStoreError, StoreUnavailable, UnknownBiz
from apps.requeststore.engine.limits import MAX_TS
from apps.requeststore.engine.sharding import Place
from apps.requeststore.queues.base import RequestQueue, Taken
from apps.requeststore.services.binding import BoundBiz, bind, bind_retired, bind_some
from apps.requeststore.services.connections import Connections
from apps.requeststore.services.ids import Ids
from apps.requeststore.services.kind import KIND
from apps.requeststore.services.looking import Found, Looking, look_everywhere
from apps.requeststore.services.submitting import Submission, check_room, checked, checked_ids
from apps.requeststore.services.taking import Taking
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

__all__ = ["BoundBiz", "Found", "Yard", "close_shared_yard", "shared_yard"]

logger = logging.getLogger(__name__)


class Yard:
    """One of each process. Thread-safe. ``now`` is in milliseconds since 1970 everywhere.

    ``name`` is what the process is called in the stories of requests, and in Redis. ``setup``
    and ``poll`` are of one thread at a time, the others may go on meanwhile.
    """

    def __init__(
        self, *, name: str = "", identity: Identity | None = None, clock: Clock | None = None
    ) -> None:
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        clock = clock or SystemClock()
        self._clock = clock
        self._connections = Connections(consumer=self.name)
        self._looking = Looking(self._connections)
        self._taking = Taking(self._connections, self._looking)
        self._ids = Ids(clock=clock)
        self._lock = threading.Lock()
        self._bound = dict[int, dict[str, BoundBiz]]()
        self._retired = dict[int, dict[str, BoundBiz]]()
        self._follower = Follower(kind=KIND, apply=self._apply, identity=identity, clock=clock)

    # --- configuration ----------------------------------------------------------------------------

    def setup(self) -> None:
        """Read what is active. Raises ``StoreUnavailable`` when the database is away."""
        try:
            with self._lock:
                self._follower.setup()
        except DATABASE_AWAY as error:
            connection.close_if_unusable_or_obsolete()
            raise StoreUnavailable("the database does not answer") from error

    def poll(self) -> bool:
        """Apply changes of the configuration and queue retries that are due; cheap.

        True when something happened. While another thread is at it, there is nothing to do.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            changed = self._follower.poll()
        finally:
            self._lock.release()
        return bool(self._taking.push_due(self.now())) or changed

    def wake(self) -> None:
        """Look at the configuration at the next ``poll``, whenever the last look was."""
        self._follower.wake()

    @property
    def problems(self) -> dict[int, str]:
        """Why the active version of a project is not the one that runs, by project."""
        return self._follower.problems

    def now(self) -> int:
        """Of this process's clock."""
        return int(self._clock.time() * 1000)

    def biz(self, project_id: int, name: str) -> BoundBiz:
        """Raises ``UnknownBiz``."""
        found = self._bound.get(project_id, {}).get(name)
        if found is None:
            raise UnknownBiz(f"the project has no biz {name[:60]!r}")
        return found

    def bizzes(self, project_id: int | None = None) -> list[BoundBiz]:
        """Those that are configured, of one project or of all, those of higher priority first."""
        return _sorted(self._bound, project_id)

    def retired(self, project_id: int | None = None) -> list[BoundBiz]:
        """Those that the active versions have no more, and that still have requests."""
        return _sorted(self._retired, project_id)

    def _apply(self, project_id: int, active: Active | None) -> None:
        try:
            bound = {} if active is None else bind(active, self._connections.urls)
        except RequestStoreError:
            if project_id not in self._bound and active is not None:
                # No last version goes on in a process that has just started: one bad biz must not
                # keep all others from being swept and counted.
                self._use(project_id, bind_some(active, self._connections.urls))
            raise
        self._use(project_id, bound)

    def _use(self, project_id: int, bound: dict[str, BoundBiz]) -> None:
        retired = bind_retired(project_id, bound, self._connections.urls)
        # Replaced as a whole: others read it meanwhile.
        self._bound = {**self._bound, project_id: bound}
        self._retired = {**self._retired, project_id: retired}

    # --- stores -----------------------------------------------------------------------------------

    def node(self, name: str) -> StorageNode:
        """A storage node. Raises ``UnknownNode``."""
        return self._connections.node(name)

    def nodes(self) -> list[str]:
        """The names of all storage nodes of this installation."""
        return sorted(self._connections.urls)

    def queue(self, bound: BoundBiz) -> RequestQueue:
        """The queue of a biz. Raises ``StoreUnavailable`` when the broker it needs is away."""
        return self._connections.queue(bound)

    def open_queue(self, bound: BoundBiz) -> RequestQueue:
        """Open the queue of a biz for one consumer, which closes it. Raises as ``queue``."""
        return self._connections.open_queue(bound)

    def ensure(self, bound: BoundBiz, place: Place) -> None:
        """Make a shard, if it does not exist, and its books. Raises ``StoreUnavailable``."""
        self._connections.ensure(bound, place)

    # --- producers --------------------------------------------------------------------------------

    def reserve(self, count: int) -> list[int]:
        """Ids for ``submit``, which can then be repeated. Raises ``StoreUnavailable``."""
        return self._ids.next_many(count)

    def check_room(self, bound: BoundBiz, wanted: int) -> None:
        """For producers that can wait, before ``submit``. Raises ``BizFull``.

        Not for what a fetcher finds in pages: it is the one who makes room.
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
        """Store requests, then queue them, and note that they are queued; their ids, in order.

        Once this returns they are accepted: if the queue is away, the upkeep queues them within a
        minute. ``ids`` are reserved ones; a repeat with the same stores nothing twice, whatever
        happened to the first call. ``priority`` None: that of the biz. Call it outside of a
        transaction.

        Raises:
            BizDisabled, BadRequests: nothing was stored.
            SubmitInterrupted: some may be stored; repeat with its ``ids``.
            StoreUnavailable: there are no ids; nothing was stored.
        """
        data = checked(bound, entities, priority)
        numbers = checked_ids(ids, len(data)) if ids is not None else self._ids.next_many(len(data))
        if not numbers:
            return []
        submission = Submission(bound, self._connections, by=by, now=now)
        at = bound.settings.priority if priority is None else priority
        return submission.store(data, numbers, priority=at, again=ids is not None)

    # --- consumers --------------------------------------------------------------------------------

    def take(self, bound: BoundBiz, taken: Sequence[Taken], *, owner: str, now: int) -> list[Take]:
        """From entries to requests, wherever their epoch put them; an answer for each, in order.

        ``AWAY``: a node does not answer, keep the entry. ``TAKEN``: it is his until
        ``take_seconds`` from now. With any other code nothing is to be done for the entry.
        """
        return self._taking.take(bound, [each.entry for each in taken], owner=owner, now=now)

    def finish(
        self,
        bound: BoundBiz,
        done: Sequence[tuple[StoredRequest, Finish]],
        *,
        owner: str,
        now: int,
        counted: set[int] | None = None,
    ) -> list[EndCode]:
        """Give requests, as ``take`` handed them out, their last flags; a code for each.

        Args:
            counted: ids that earlier calls for the same ends have added to the rates. A caller
                that repeats a call after an error passes the same set again, so that an end whose
                answer was lost is counted, and counted once.

        Raises:
            StoreUnavailable: a node did not answer. The ends on other nodes are stored, and the
                call may be repeated.
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
        """New again, and queued at ``not_before`` by ``poll`` of this process; else as ``finish``.

        Should the process die before, the upkeep queues them.
        """
        return self._taking.give_back(bound, back, owner=owner, now=now)

    # --- people -----------------------------------------------------------------------------------

    def find(
        self, number: int, project_id: int | None = None, biz: str | None = None
    ) -> Found | None:
        """A request by its id, of one project or of all (seed S4.29).

        Raises ``StoreUnavailable``: found nowhere, and not every node has answered.
        """
        bizzes = [*self.bizzes(project_id), *self.retired(project_id)]
        if biz is not None:
            bizzes = [bound for bound in bizzes if bound.name == biz]
        return look_everywhere(self._looking, bizzes, number)

    def page(
        self,
        bound: BoundBiz,
        *,
        flag: int | None = None,
        since: int = 0,
        until: int = MAX_TS,
        after: tuple[int, int] | None = None,
        limit: int = 100,
    ) -> list[Found]:
        """Requests of all shards, newest first by (ts, id), before ``after``.

        Without their data and steps. Raises ``StoreUnavailable``.
        """
        return self._looking.page(
            bound, flag=flag, since=since, until=until, after=after, limit=limit
        )

    def close(self) -> None:
        """Queue what waits for a retry, give the worker id back, let go of every connection."""
        self._taking.push_due(None)
        self._ids.close()
        self._connections.close()


def _sorted(bound: dict[int, dict[str, BoundBiz]], project_id: int | None) -> list[BoundBiz]:
    projects = list(bound.values()) if project_id is None else [bound.get(project_id, {})]
    return sorted(
        (each for named in projects for each in named.values()),
        key=lambda each: (-each.settings.priority, each.project_id, each.name),
    )


class _Shared:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.yard: Yard | None = None


_shared = _Shared()


def _forget_after_fork() -> None:
    # The parent's connections and ids are not ours.
    global _shared
    _shared = _Shared()


os.register_at_fork(after_in_child=_forget_after_fork)


def shared_yard() -> Yard:
    """The yard of a process that is no daemon of this app. Follows the configuration when used.

    Raises ``StoreUnavailable``: at the first use, when the database is away.
    """
    shared = _shared
    yard = shared.yard
    if yard is None:
        with shared.lock:
            if shared.yard is None:
                made = Yard()
                made.setup()
                shared.yard = made
            yard = shared.yard
    yard.poll()
    return yard


def close_shared_yard() -> None:
    """Close it, if there is one; the next use makes a new one."""
    shared = _shared
    with shared.lock:
        yard, shared.yard = shared.yard, None
    if yard is not None:
        yard.close()
