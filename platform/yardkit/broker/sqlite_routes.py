"""Queues, exchanges, bindings and consumers as one process knows them, and routing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field

from yardkit.broker.base import QueueSpec

_ROUTES_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of the file."""

    id: int
    spec: QueueSpec
    consumers: int
    # Sessions of other processes, and of other broker objects here, that consume it.
    addresses: frozenset[str]


@dataclass(slots=True)
class Topology:
    """Snapshot, valid while ``version`` is that of the file."""

    version: int = 0
    queues: dict[str, Queue] = field(default_factory=dict)
    by_id: dict[int, Queue] = field(default_factory=dict)
    exchanges: dict[str, str] = field(default_factory=dict)
    bindings: dict[str, list[tuple[list[str], Queue]]] = field(default_factory=dict)
    _routes: dict[tuple[str, str], tuple[Queue, ...] | None] = field(default_factory=dict)

    def route(self, exchange: str, key: str) -> tuple[Queue, ...] | None:
        """Return the queues of a message; None for an unknown exchange."""
        if not exchange:
            queue = self.queues.get(key)
            return () if queue is None else (queue,)
        try:
            return self._routes[exchange, key]
        except KeyError:
            if len(self._routes) >= _ROUTES_KEPT:
                self._routes.clear()
            targets = self._routes[exchange, key] = self._find(exchange, key)
            return targets

    def _find(self, exchange: str, key: str) -> tuple[Queue, ...] | None:
        kind = self.exchanges.get(exchange)
        if kind is None:
            return None
        words = key.split(".") if key else []
        # A queue bound twice gets one copy.
        wanted = {
            queue.id: queue
            for pattern, queue in self.bindings.get(exchange, ())
            if kind == "fanout" or topic_matches(pattern, words)
        }
        return tuple(wanted.values())


def topic_matches(pattern: list[str], words: list[str]) -> bool:
    """Return whether a key matches a pattern: ``*`` is one word, ``#`` any number.

    Reached positions are kept as a set, so the time is not exponential.
    """
    reached = _skip_hashes(pattern, {0})
    for word in words:
        following: set[int] = set()
        for position in reached:
            if position == len(pattern):
                continue
            wanted = pattern[position]
            if wanted == "#":
                following.add(position)
            elif wanted in ("*", word):
                following.add(position + 1)
        reached = _skip_hashes(pattern, following)
        if not reached:
            return False
    return len(pattern) in reached


def _skip_hashes(pattern: list[str], positions: Iterable[int]) -> set[int]:
    reached: set[int] = set()
    for position in positions:
        reached.add(position)
        while position < len(pattern) and pattern[position] == "#":
            position += 1
            reached.add(position)
    return reached


def load_topology(connection: sqlite3.Connection, own_session: int) -> Topology:
    """Load everything in one snapshot of the file."""
    connection.execute("BEGIN")
    try:
        return _load(connection, own_session)
    finally:
        connection.execute("COMMIT")


def _load(connection: sqlite3.Connection, own_session: int) -> Topology:
    (version,) = connection.execute("SELECT topology FROM state").fetchone()
    addresses: dict[int, set[str]] = {}
    consumers: dict[int, int] = {}
    for queue_id, session_id, address in connection.execute(
        "SELECT queue_id, session_id, address FROM consumer JOIN session ON session.id = session_id"
    ):
        consumers[queue_id] = consumers.get(queue_id, 0) + 1
        if session_id != own_session and address:
            addresses.setdefault(queue_id, set()).add(address)
    topology = Topology(version=version)
    for id_, *columns in connection.execute(
        "SELECT id, name, durable, max_priority, dead_letter, expires_seconds,"
        " message_ttl_seconds FROM queue"
    ):
        queue = Queue(
            id_, _spec(*columns), consumers.get(id_, 0), frozenset(addresses.get(id_, ()))
        )
        topology.queues[queue.spec.name] = topology.by_id[id_] = queue
    topology.exchanges = dict(connection.execute("SELECT name, kind FROM exchange"))
    for exchange, key, queue_id in connection.execute(
        "SELECT exchange, key, queue_id FROM binding"
    ):
        pattern = key.split(".") if key else []
        topology.bindings.setdefault(exchange, []).append((pattern, topology.by_id[queue_id]))
    return topology


def _spec(
    name: str,
    durable: int,
    max_priority: int,
    dead_letter: int,
    expires_seconds: float | None,
    message_ttl_seconds: float | None,
) -> QueueSpec:
    return QueueSpec(
        name, bool(durable), max_priority, bool(dead_letter), expires_seconds, message_ttl_seconds
    )
