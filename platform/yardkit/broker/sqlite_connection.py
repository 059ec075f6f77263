"""One open broker file: publishing, acknowledging and claiming."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from yardkit.broker.base import DEAD_QUEUE, BrokerError, Unroutable
from yardkit.broker.declared import Declared
from yardkit.broker.sqlite_clock import SharedClock
from yardkit.broker.sqlite_operations import OperationBatch
from yardkit.broker.sqlite_records import unpack
from yardkit.broker.sqlite_routes import load_topology
from yardkit.broker.sqlite_schema import TOPOLOGY_CHANGED, open_database, side_folder
from yardkit.broker.sqlite_sessions import SqliteSession
from yardkit.broker.sqlite_subscription import SqliteSubscription
from yardkit.broker.sqlite_sweep import Sweeper
from yardkit.broker.sqlite_tables import (
    add_consumer,
    bind,
    declare_exchange,
    declare_queue,
    remove_consumers,
    remove_session,
    when_free,
    writing,
)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Claim:
    subscription: SqliteSubscription
    number: int
    asked: int
    alone: bool


_Row = tuple[int, int, int, float | None, bytes, bytes]


class FileConnection:
    """A connection with its session and its view of other processes. I/O thread only."""

    def __init__(self, file: Path, name: str, declared: Declared) -> None:
        """Open the file; raises what ``open_database`` raises and ``sqlite3.Error``."""
        self.database = open_database(file)
        self.session = SqliteSession(side_folder(file), name)
        try:
            with writing(self.database):
                self.session.open(self.database)
            self.clock = SharedClock.of(self.database)
            self._declared = declared
            self._restore()
            self.topology = load_topology(self.database, self.session.id)
        except BaseException:
            self.session.close()
            self.database.close()
            raise
        self._sweeper = Sweeper(self.database, file, self.session.id)
        self._claims = 0
        self._seen_version = -1
        self._must_reap = False

    def _restore(self) -> None:
        for spec in list(self._declared.queues.values()):
            try:
                declare_queue(self.database, spec, self.clock.now())
            except BrokerError as error:
                logger.warning("cannot declare again: %s", error)
        for name, kind in list(self._declared.exchanges.items()):
            with suppress(BrokerError):
                declare_exchange(self.database, name, kind)
        for binding in list(self._declared.bindings):
            with suppress(BrokerError):
                bind(self.database, binding.queue, binding.exchange, binding.key)

    def close(self) -> None:
        """Return unacknowledged messages and disconnect; never raises."""
        try:
            removed = remove_session(self.database, self.session.id, self.clock.now())
            if removed is not None:
                self.wake_others(removed[2])
        except sqlite3.Error as error:
            logger.debug("the others will clean up this session: %s", error)
        self.session.close()
        with suppress(sqlite3.Error):
            self.database.close()

    # --- the hot path --------------------------------------------------------------------------

    def commit(self, batch: OperationBatch, subscriptions: Sequence[SqliteSubscription]) -> None:
        """Execute a batch in one transaction, then deliver the claimed messages.

        Raises ``sqlite3.Error`` when nothing was committed.
        """
        while True:
            rows, unroutable, touched = self._route(batch)
            for subscription in subscriptions:
                if subscription.queue_id in touched:
                    subscription.look_again()
            claims = self._plan_claims(subscriptions)
            if not (batch or claims):
                return
            self._fill(batch, rows, claims)
            try:
                self._run_work()
            except sqlite3.IntegrityError as error:
                if TOPOLOGY_CHANGED not in str(error):
                    raise
                self._empty()
                self.refresh(subscriptions)
            else:
                break
        batch.confirm(unroutable)
        self.wake_others(touched)
        for claim in claims:
            self._collect(claim)

    def _run_work(self) -> None:
        version = (self.topology.version,)
        when_free(lambda: self.database.execute("INSERT INTO work VALUES (?)", version))

    def _route(self, batch: OperationBatch) -> tuple[list[_Row], dict[int, list[str]], set[int]]:
        rows: list[_Row] = []
        unroutable: dict[int, list[str]] = {}
        touched = set(batch.given_back)
        if batch.burials:
            touched.add(self.topology.queues[DEAD_QUEUE].id)
        now = self.clock.now()
        route = self.topology.route
        for position, publish in enumerate(batch.publishes):
            for message, envelope in zip(publish.messages, publish.envelopes, strict=True):
                queues = route(message.exchange, message.key)
                if not queues and (queues is None or message.mandatory):
                    unroutable.setdefault(position, []).append(message.key)
                for queue in queues or ():
                    spec = queue.spec
                    ttl, limit = message.ttl_seconds, spec.message_ttl_seconds
                    if limit is not None and (ttl is None or ttl > limit):
                        ttl = limit
                    rank = -min(message.priority, spec.max_priority)
                    expires_at = None if ttl is None else now + ttl
                    touched.add(queue.id)
                    rows.append((len(rows), queue.id, rank, expires_at, envelope, message.body))
        return rows, unroutable, touched

    def _plan_claims(self, subscriptions: Iterable[SqliteSubscription]) -> list[_Claim]:
        now = time.monotonic()
        claims: list[_Claim] = []
        for subscription in subscriptions:
            if subscription.claims_in(now) == 0.0:
                self._claims += 1
                queue = self.topology.by_id.get(subscription.queue_id)
                alone = queue is None or queue.consumers <= 1
                claims.append(_Claim(subscription, self._claims, subscription.credit, alone))
        return claims

    def _fill(self, batch: OperationBatch, rows: list[_Row], claims: list[_Claim]) -> None:
        many = self.database.executemany
        if rows:
            many("INSERT INTO publishing VALUES (?, ?, ?, ?, ?, ?)", rows)
        if batch.acks:
            many("INSERT INTO acking VALUES (?, ?, ?)", batch.acks)
        if batch.releases:
            many("INSERT INTO releasing VALUES (?, ?, ?)", batch.releases)
        if batch.burials:
            many("INSERT INTO burying VALUES (?, ?, ?, ?)", batch.burials)
        if claims:
            now = self.clock.now()
            many(
                "INSERT INTO claiming VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (
                        claim.subscription.consumer_id,
                        claim.number,
                        claim.subscription.queue_id,
                        claim.asked,
                        1 if claim.alone else self._sharers(claim.subscription.queue_id),
                        now,
                    )
                    for claim in claims
                ],
            )

    def _sharers(self, queue_id: int) -> int:
        queue = self.topology.by_id.get(queue_id)
        return 1 if queue is None else max(queue.consumers, 1)

    def _empty(self) -> None:
        for table in ("publishing", "acking", "releasing", "burying", "claiming"):
            self.database.execute(f"DELETE FROM {table}")  # noqa: S608  (the names above)

    def _collect(self, claim: _Claim) -> None:
        subscription = claim.subscription
        rows = self.database.execute(
            "SELECT unacked.id, redelivered, envelope, body"
            " FROM unacked CROSS JOIN message USING (id)"
            " WHERE consumer_id = ? AND claim = ? ORDER BY rank, unacked.id",
            (subscription.consumer_id, claim.number),
        ).fetchall()
        subscription.accept(
            [unpack(subscription.queue, claim.number, row) for row in rows],
            asked=claim.asked,
            alone=claim.alone,
        )

    # --- the others ----------------------------------------------------------------------------

    def wake_others(self, queue_ids: Iterable[int]) -> None:
        """Wake the sessions that consume these queues."""
        wanted: dict[str, list[int]] = {}
        for queue_id in queue_ids:
            queue = self.topology.by_id.get(queue_id)
            for address in queue.addresses if queue is not None else ():
                wanted.setdefault(address, []).append(queue_id)
        for address, ids in wanted.items():
            if not self.session.wake(address, ids):
                self._must_reap = True  # no consumer there: do not wait for the next sweep

    def refresh(self, subscriptions: Iterable[SqliteSubscription]) -> None:
        """Reload queues and consumers; recreate own queues that vanished."""
        self.topology = load_topology(self.database, self.session.id)
        attached = False
        for subscription in subscriptions:
            queue = self.topology.queues.get(subscription.queue)
            if queue is None or queue.id != subscription.queue_id:
                attached |= self._attach_again(subscription)
        if attached:
            self.topology = load_topology(self.database, self.session.id)

    def _attach_again(self, subscription: SqliteSubscription) -> bool:
        if subscription.consumer_id:
            self.remove_consumer(subscription)
        spec = self._declared.queues.get(subscription.queue)
        try:
            if spec is not None:
                declare_queue(self.database, spec, self.clock.now())
                for binding in self._declared.bindings_of(spec.name):
                    bind(self.database, binding.queue, binding.exchange, binding.key)
            self.add_consumer(subscription)
        except Unroutable:
            return False  # it is not declared again yet; the next change will show
        except BrokerError as error:
            logger.warning("cannot subscribe again: %s", error)
            return False
        return True

    def add_consumer(self, subscription: SqliteSubscription) -> None:
        """Register a consumer; raises ``Unroutable``. ``refresh`` afterwards."""
        subscription.attach(*add_consumer(self.database, self.session.id, subscription.queue))

    def remove_consumer(self, subscription: SqliteSubscription) -> None:
        """Remove a consumer and return its unacknowledged messages. Call ``refresh`` afterwards."""
        with writing(self.database):
            queue_ids = remove_consumers(
                self.database, [subscription.consumer_id], self.clock.now()
            )
        subscription.detach()
        self.wake_others(queue_ids)

    def check_for_changes(self, subscriptions: Sequence[SqliteSubscription]) -> None:
        """Check cheaply whether another process changed something."""
        (version,) = self.database.execute("PRAGMA data_version").fetchone()
        if version == self._seen_version:
            return
        self._seen_version = version
        (topology,) = self.database.execute("SELECT topology FROM state").fetchone()
        if topology != self.topology.version:
            self.refresh(subscriptions)
        now = self.clock.now()
        for subscription in subscriptions:
            if subscription.is_idle and self._has_ready(subscription.queue_id, now):
                subscription.look_again()

    def _has_ready(self, queue_id: int, now: float) -> bool:
        row = self.database.execute(
            "SELECT 1 FROM ready WHERE queue_id = ? AND (expires_at IS NULL OR expires_at > ?)"
            " LIMIT 1",
            (queue_id, now),
        ).fetchone()
        return row is not None

    def sweep(self, subscriptions: Iterable[SqliteSubscription]) -> bool:
        """Run one round of housekeeping; True when another is due at once."""
        news, more = self._sweeper.sweep(self.topology, self.clock.now())
        self._must_reap = False
        self._spread(news, subscriptions)
        return more

    def reap_if_needed(self, subscriptions: Iterable[SqliteSubscription]) -> None:
        """Search for dead sessions now, after a wake-up that reached no process."""
        if self._must_reap:
            self._must_reap = False
            self._spread(self._sweeper.reap(self.clock.now()), subscriptions)

    def _spread(self, news: set[int], subscriptions: Iterable[SqliteSubscription]) -> None:
        self.wake_others(news)
        for subscription in subscriptions:
            if subscription.queue_id in news:
                subscription.look_again()
