"""Consumption of record queues: consume, peek, or lease until an acknowledgement.

A lease moves records out of the broker into rows before the broker forgets them, so that any web
process can take the acknowledgement; unacknowledged records go to the next caller.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from django.db import transaction
from django.db.models import F, Q, QuerySet

from apps.runtime.services import shared_broker
from apps.sources.engine.records import EXPIRES_AT
from apps.sources.errors import BrokerUnreachable, NoSuchLease
from apps.sources.models import HandedRecord, RecordQueue
from yardkit import failpoints
from yardkit.broker import Broker, BrokerError, Delivery, QueueSpec, Subscription, Unroutable
from yardkit.nesting import check_json

MAX_RECORDS: Final = 1000
MAX_LEASE_SECONDS: Final = 24 * 3600
# Timeout of a delivery when the broker reports waiting messages.
_WAIT_SECONDS: Final = 2.0
# Longer than any call that consumes.
_CONSUMING: Final = timedelta(seconds=60)
# How long an acknowledged record is kept, to recognise a redelivery.
_REMEMBERED: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Record:
    """A record for a consumer. ``data`` is None for a body that is not JSON."""

    message_id: str
    body: bytes
    expires_at: datetime | None

    @property
    def digest(self) -> str:
        """Digest of the body."""
        return hashlib.blake2b(self.body, digest_size=16).hexdigest()

    @property
    def key(self) -> tuple[str, str]:
        """Key that is equal for copies of one record."""
        return self.message_id, self.digest

    @property
    def data(self) -> Any:
        """Parsed body."""
        try:
            check_json(self.body)
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def shown(self) -> dict[str, Any]:
        """Return a dict for JSON; a body that is not JSON becomes base64."""
        data = self.data
        record: dict[str, Any] = {
            "id": self.message_id,
            "record": data,
            "expires_at": self.expires_at,
        }
        if data is None:
            record["raw"] = base64.b64encode(self.body).decode()
        return record


@dataclass(frozen=True, slots=True)
class RecordLease:
    """Records leased until ``deadline_at``; empty if the queue is empty."""

    lease: str
    deadline_at: datetime
    records: list[Record]


def consume(*, queue: RecordQueue, count: int, now: datetime) -> list[Record]:
    """Remove and return up to ``count`` records, oldest first. Raises ``BrokerUnreachable``.

    The broker keeps no copy: callers that must not lose records use a lease.
    """
    lease = secrets.token_hex(16)
    # Claimed until the end of the call: records of a process that dies meanwhile return.
    records = _claim_free(queue, count, lease, "", now + _CONSUMING, now)
    if len(records) < count:
        try:
            with _consuming(queue.name, count - len(records)) as (subscription, deliveries):
                fresh, copies = _unknown(queue, _unexpired(deliveries, now))
                failpoints.hit("sources.records_consumed")
                try:
                    subscription.ack(deliveries)
                except BrokerError:
                    # Redelivery is possible; the rows recognise it.
                    records += _keep(queue, fresh, lease, "", now + _CONSUMING)
                    raise
                records += fresh
            _settle(copies)
        except BrokerUnreachable:
            # Records taken from rows must reach their consumer.
            if not records:
                raise
    _done(HandedRecord.objects.filter(queue=queue, lease=lease), now)
    return records


def peek(*, queue: RecordQueue, count: int, now: datetime) -> list[Record]:
    """Return the next ``count`` records without removing them. Raises ``BrokerUnreachable``."""
    records = [_record(row) for row in _free(queue, now)[:count]]
    if len(records) < count:
        with _consuming(queue.name, count - len(records)) as (subscription, deliveries):
            records += _unknown(queue, _unexpired(deliveries, now))[0]
            subscription.requeue(deliveries)
    return records


def lease_records(
    *, queue: RecordQueue, count: int, seconds: float, holder: str, now: datetime
) -> RecordLease:
    """Lease up to ``count`` records for ``seconds``.

    Raises ``BrokerUnreachable`` unless the database holds returned records to lease instead.
    """
    lease, deadline = secrets.token_hex(16), now + timedelta(seconds=seconds)
    records = _claim_free(queue, count, lease, holder, deadline, now)
    if len(records) < count:
        try:
            records += _lease_from_broker(queue, count - len(records), lease, holder, deadline, now)
        except BrokerUnreachable:
            if not records:
                raise
    return RecordLease(lease, deadline, records)


def acknowledge(
    *, queue: RecordQueue, lease: str, message_ids: Sequence[str] | None = None, now: datetime
) -> int:
    """Acknowledge these records, or all of the lease; return their number.

    An expired lease can still be acknowledged unless its records were leased again. Raises
    ``NoSuchLease`` if no record of this lease is left.
    """
    return _done(_leased(queue, lease, message_ids), now)


def give_back(
    *, queue: RecordQueue, lease: str, message_ids: Sequence[str] | None = None, now: datetime
) -> int:
    """Return these records, or all of the lease, to the queue; return their number.

    Raises ``NoSuchLease``.
    """
    mine = _leased(queue, lease, message_ids)
    return mine.update(lease="", holder="", deadline_at=now)


def prune_expired(*, now: datetime, limit: int = 10_000) -> int:
    """Delete rows of expired records and of old acknowledgements; return their number."""
    over = Q(expires_at__lte=now) | Q(done=True, deadline_at__lte=now - _REMEMBERED)
    due = HandedRecord.objects.filter(over).values_list("pk", flat=True)[:limit]
    return HandedRecord.objects.filter(pk__in=list(due)).delete()[0]


# --- rows -----------------------------------------------------------------------------------------


def _free(queue: RecordQueue, now: datetime) -> QuerySet[HandedRecord]:
    """Rows that were returned or whose lease has expired."""
    free = HandedRecord.objects.filter(queue=queue, deadline_at__lte=now, done=False)
    return free.exclude(expires_at__lte=now)


def _claim_free(
    queue: RecordQueue, count: int, lease: str, holder: str, deadline: datetime, now: datetime
) -> list[Record]:
    """Claim free rows. Concurrent callers get different rows: SQLite serializes, others SKIP
    LOCKED.
    """
    with transaction.atomic():
        rows = list(_free(queue, now).select_for_update(skip_locked=True)[:count])
        HandedRecord.objects.filter(pk__in=[row.pk for row in rows]).update(
            lease=lease, holder=holder[:150], deadline_at=deadline, times=F("times") + 1
        )
    return [_record(row) for row in rows]


def _leased(
    queue: RecordQueue, lease: str, message_ids: Sequence[str] | None
) -> QuerySet[HandedRecord]:
    rows = HandedRecord.objects.filter(queue=queue, lease=lease)
    if not lease or not rows.exists():
        raise NoSuchLease
    return rows if message_ids is None else rows.filter(message_id__in=list(message_ids))


@transaction.atomic
def _done(rows: QuerySet[HandedRecord], now: datetime) -> int:
    """Mark the records as acknowledged; return their number."""
    gone = rows.filter(settled=True).delete()[0]
    # The broker may still have a copy.
    return gone + rows.filter(settled=False).update(
        done=True, lease="", holder="", deadline_at=now, body=b""
    )


def _settle(copies: Sequence[int]) -> None:
    """Mark rows whose copies the broker has deleted."""
    if copies:
        rows = HandedRecord.objects.filter(pk__in=list(copies))
        rows.filter(done=True).delete()
        rows.update(settled=True)


def _record(row: HandedRecord) -> Record:
    return Record(row.message_id, bytes(row.body), row.expires_at)


def _unknown(queue: RecordQueue, records: Sequence[Record]) -> tuple[list[Record], list[int]]:
    """Split deliveries into new records, each once, and rows of known ones.

    A process that died before its acknowledgement reached the broker leaves both.
    """
    names = [record.message_id for record in records]
    rows = HandedRecord.objects.filter(queue=queue, message_id__in=names)
    known = {(row[0], row[1]): row[2] for row in rows.values_list("message_id", "digest", "pk")}
    fresh = {record.key: record for record in records if record.key not in known}
    return list(fresh.values()), [known[record.key] for record in records if record.key in known]


def _lease_from_broker(
    queue: RecordQueue, count: int, lease: str, holder: str, deadline: datetime, now: datetime
) -> list[Record]:
    with _consuming(queue.name, count) as (subscription, deliveries):
        with transaction.atomic():
            fresh, copies = _unknown(queue, _unexpired(deliveries, now))
            mine = _keep(queue, fresh, lease, holder, deadline)
        failpoints.hit("sources.records_leased")
        subscription.ack(deliveries)
    HandedRecord.objects.filter(queue=queue, lease=lease, times=1).update(settled=True)
    _settle(copies)
    return mine


@transaction.atomic
def _keep(
    queue: RecordQueue, records: Sequence[Record], lease: str, holder: str, deadline: datetime
) -> list[Record]:
    """Store rows of records that the broker still has; return those of this lease."""
    HandedRecord.objects.bulk_create(
        (
            HandedRecord(
                queue=queue,
                message_id=record.message_id,
                digest=record.digest,
                body=record.body,
                expires_at=record.expires_at,
                lease=lease,
                holder=holder[:150],
                deadline_at=deadline,
            )
            for record in records
        ),
        # Another process may receive a copy concurrently: only one of them gets it.
        ignore_conflicts=True,
    )
    # Records that were free before are being redelivered.
    rows = HandedRecord.objects.filter(queue=queue, lease=lease, times=1)
    mine = set(rows.values_list("message_id", "digest"))
    return [record for record in records if record.key in mine]


# --- the broker -----------------------------------------------------------------------------------


@contextmanager
def _consuming(queue: str, count: int) -> Iterator[tuple[Subscription, list[Delivery]]]:
    """Yield up to ``count`` deliveries; unsettled ones are requeued. Raises ``BrokerUnreachable``.

    A queue that does not exist is empty.
    """
    try:
        broker = shared_broker()
        broker.declare(QueueSpec(queue))
        subscription = broker.subscribe(queue, prefetch=count)
    except BrokerError as error:
        raise BrokerUnreachable from error
    try:
        yield subscription, _deliveries(broker, subscription, queue, count)
    except BrokerError as error:
        raise BrokerUnreachable from error
    finally:
        subscription.close()


def _deliveries(
    broker: Broker, subscription: Subscription, queue: str, count: int
) -> list[Delivery]:
    deadline = time.monotonic() + _WAIT_SECONDS
    deliveries: list[Delivery] = []
    while len(deliveries) < count:
        some = subscription.take(count - len(deliveries), timeout=0.02)
        deliveries += some
        if not some:
            # Expired messages are removed at the head only, so waiting ones may not arrive.
            try:
                waiting = broker.depth(queue).ready
            except Unroutable:
                waiting = 0
            if not waiting or time.monotonic() >= deadline:
                break
    return deliveries


def _of_delivery(delivery: Delivery) -> Record:
    at = delivery.headers.get(EXPIRES_AT)
    expires_at = None
    if isinstance(at, int) and not isinstance(at, bool) and 0 < at < 2**47:
        expires_at = datetime.fromtimestamp(at / 1000, UTC)
    # Messages of other programs may have no id.
    name = delivery.message_id or secrets.token_hex(16)
    return Record(name[:255], delivery.body, expires_at)


def _unexpired(deliveries: Sequence[Delivery], now: datetime) -> list[Record]:
    """Drop records that have expired since they were published."""
    records = [_of_delivery(delivery) for delivery in deliveries]
    return [record for record in records if record.expires_at is None or record.expires_at > now]
