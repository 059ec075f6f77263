"""Look-up of requests in every place where they may be."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from django.db import connection

from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.engine.limits import MAX_TS
from apps.requeststore.engine.placement import ShardPlace, time_of
from apps.requeststore.services.bindings import BoundBiz, owners_of_shards, with_former
from apps.requeststore.services.connections import Connections
from apps.requeststore.stores.base import StoredRequest
from apps.runtime.errors import DATABASE_AWAY

# Interval (seconds), per project, of reloading places for unknown IDs.
RELOAD_SECONDS: Final = 5.0

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class FoundRequest:
    """Request with its biz and place."""

    bound: BoundBiz
    place: ShardPlace
    request: StoredRequest


class RequestLookup:
    """Finds stored requests by their ids; one instance per process. Thread-safe."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._reloaded = dict[int, float]()

    def many(self, bound: BoundBiz, ids: Sequence[int]) -> dict[int, FoundRequest]:
        """Return the existing requests by ID. Raises ``RequestStoreUnavailable`` when a missing one
        may be on an unreachable node.
        """
        known = dict[int, FoundRequest]()

        def look(place: ShardPlace, numbers: Sequence[int]) -> Iterator[int]:
            requests = self._connections.node(place.node).find(place.shard, numbers)
            for number, request in zip(numbers, requests, strict=True):
                if request is None or request.biz != bound.name:
                    yield number
                else:
                    known[number] = FoundRequest(bound, place, request)

        away = self.through(bound, ids, lambda number: (number, None), look)
        if away is not None and len(known) < len(ids):
            raise away
        return known

    def likeliest(self, bound: BoundBiz, number: int) -> FoundRequest | None:
        """Return the request if it is in the place that its ID names. Raises
        ``RequestStoreUnavailable``.
        """
        place = bound.candidates(number)[0]
        (request,) = self._connections.node(place.node).find(place.shard, [number])
        if request is None or request.biz != bound.name:
            return None
        return FoundRequest(bound, place, request)

    def anywhere(self, bound: BoundBiz, number: int) -> FoundRequest | None:
        """Return the request from any place. Raises ``RequestStoreUnavailable``."""
        return self.many(bound, [number]).get(number)

    def through(
        self,
        bound: BoundBiz,
        items: Iterable[_Item],
        key: Callable[[_Item], tuple[int, int | None]],
        look: Callable[[ShardPlace, Sequence[_Item]], Iterable[_Item]],
    ) -> RequestStoreUnavailable | None:
        """Process items, each with its (ID, ts), in their likeliest places, then in all others.

        ``look`` works on one place and yields the items it does not find there. Unknown items are
        also looked for in places that other processes have added. Returns the error of the last
        unreachable node, if any; ``look`` was not called for that node's places then.
        """
        away: RequestStoreUnavailable | None = None

        def ask(place: ShardPlace, group: Sequence[_Item]) -> list[_Item]:
            nonlocal away
            try:
                return list(look(place, group))
            except RequestStoreUnavailable as error:
                away = error
                return list(group)

        likeliest = dict[ShardPlace, list[_Item]]()
        for item in items:
            number, ts = key(item)
            place = bound.spread.place(number, time_of(number) if ts is None else ts)
            likeliest.setdefault(place, []).append(item)
        missed = [result for place, group in likeliest.items() for result in ask(place, group)]
        visited = set[ShardPlace]() if len(likeliest) > 1 else set(likeliest)
        for reload in (False, True):
            known = self._reload(bound) if reload and missed else bound
            for place in known.places:
                if missed and place not in visited:
                    visited.add(place)
                    missed = ask(place, missed)
        if missed and (len(bound.settings.epochs) > 1 or bound.former):
            # Again: a re-balance may have moved a request after its new place was queried and
            # before its old one was.
            newest = dict[ShardPlace, list[_Item]]()
            for item in missed:
                place = bound.spread.place(key(item)[0], bound.settings.epochs[-1].since)
                newest.setdefault(place, []).append(item)
            for place, group in newest.items():
                ask(place, group)
        return away

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
        """Return requests of all shards, newest first by (ts, ID). Raises
        ``RequestStoreUnavailable``.
        """
        streams = [
            [
                FoundRequest(bound, place, request)
                for request in self._connections.node(place.node).page(
                    place.shard,
                    biz=bound.name,
                    flag=flag,
                    since=since,
                    until=until,
                    after=after,
                    limit=limit,
                )
            ]
            for place in bound.places
        ]
        merged = heapq.merge(*streams, key=_newest_first)
        # During a move a request is in two shards.
        unique = (next(same) for _, same in itertools.groupby(merged, key=_newest_first))
        return list(itertools.islice(unique, limit))

    def _reload(self, bound: BoundBiz) -> BoundBiz:
        """Return the biz with its current places; queries at most every ``RELOAD_SECONDS``."""
        now = time.monotonic()
        with self._lock:
            if now - self._reloaded.get(bound.project_id, float("-inf")) < RELOAD_SECONDS:
                return bound
            self._reloaded[bound.project_id] = now
        try:
            owners = owners_of_shards(bound.project_id)
        except DATABASE_AWAY:
            connection.close_if_unusable_or_obsolete()
            return bound
        return with_former(bound, owners, self._connections.urls)


def look_everywhere(
    looking: RequestLookup, bizzes: Sequence[BoundBiz], number: int
) -> FoundRequest | None:
    """Return the request with this ID from any of the bizzes.

    Raises ``RequestStoreUnavailable``: not found, and some nodes are unreachable.
    """
    problem: RequestStoreUnavailable | None = None
    # The likeliest places first, so that few of many bizzes and splits are queried.
    for look in (looking.likeliest, looking.anywhere):
        for bound in bizzes:
            try:
                result = look(bound, number)
            except RequestStoreUnavailable as error:
                problem = error
                continue
            if result is not None:
                return result
    if problem is not None:
        raise problem
    return None


def _newest_first(found: FoundRequest) -> tuple[int, int]:
    return -found.request.ts, -found.request.id
