"""Records out of their queue (seed S0.34 to S0.36): consumed, looked at, or leased until an ack.

A lease takes records out of the broker into rows before the broker forgets them, so that any web
process can take the acknowledgement, and what nobody acknowledges goes to whoever asks next.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from django.db import transaction
from django.db.models import F

from apps.runtime.services import shared_broker
from apps.sources.engine.records import EXPIRES_AT
from apps.sources.errors import BrokerAway, NoSuchLease
from apps.sources.models import HandedRecord, RecordQueue
from yardkit import failpoints
from yardkit.broker import Broker, BrokerError, Delivery, QueueSpec, Subscription, Unroutable

MAX_RECORDS: Final = 1000
MAX_LEASE_SECONDS: Final = 24 * 3600
# How long the broker is waited for once it has said that there is something.
_WAIT_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a consumer gets it. ``data`` is None for a body that is no JSON."""

    message_id: str
    body: bytes
    expires_at: datetime | None

    @property
    def data(self) -> Any:
        """What the source gave."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, RecursionError):
            return None

    def shown(self) -> dict[str, Any]:
        """For JSON; a body that cannot be read comes as base64."""
        data = self.data
        found: dict[str, Any] = {
            "id": self.message_id,
            "record": data,
            "expires_at": self.expires_at,
        }
        if data is None:
            found["raw"] = base64.b64encode(self.body).decode()
        return found


@dataclass(frozen=True, slots=True)
class RecordLease:
    """Records that are somebody's until ``deadline_at``; none: the queue is empty."""

    lease: str
    deadline_at: datetime
    records: list[Record]


def consume(*, queue: RecordQueue, count: int, now: datetime) -> list[Record]:
    """Take up to ``count`` records for good, oldest first. Raises ``BrokerAway``.

    They are gone once this returns: who cannot promise to keep them takes a lease.
    """
    with transaction.atomic():
        rows = _free_rows(queue, count, now)
        found = [_record(row) for row in rows]
        HandedRecord.objects.filter(pk__in=[row.pk for row in rows]).delete()
    if len(found) < count:
        try:
            with _taking(queue.name, count - len(found)) as (subscription, deliveries):
                found += [_of_delivery(each) for each in _living(deliveries, now)]
                subscription.ack(deliveries)
        except BrokerAway:
            # What came out of the rows must reach its consumer.
            if not found:
                raise
    return found


def peek(*, queue: RecordQueue, count: int, now: datetime) -> list[Record]:
    """The next ``count`` records; they stay where they are. Raises ``BrokerAway``."""
    free = HandedRecord.objects.filter(queue=queue, deadline_at__lte=now).exclude(
        expires_at__lte=now
    )
    found = [_record(row) for row in free[:count]]
    if len(found) < count:
        with _taking(queue.name, count - len(found)) as (subscription, deliveries):
            found += [_of_delivery(each) for each in _living(deliveries, now)]
            subscription.requeue(deliveries)
    return found


def lease_records(
    *, queue: RecordQueue, count: int, seconds: float, holder: str, now: datetime
) -> RecordLease:
    """Take up to ``count`` records until they are acknowledged, or ``seconds`` are over.

    Raises ``BrokerAway``; what had been given back before is leased all the same.
    """
    lease, deadline = secrets.token_hex(16), now + timedelta(seconds=seconds)
    with transaction.atomic():
        rows = _free_rows(queue, count, now)
        HandedRecord.objects.filter(pk__in=[row.pk for row in rows]).update(
            lease=lease, holder=holder[:150], deadline_at=deadline, times=F("times") + 1
        )
    found = [_record(row) for row in rows]
    if len(found) < count:
        try:
            found += _lease_from_broker(queue, count - len(found), lease, holder, deadline, now)
        except BrokerAway:
            if not found:
                raise
    return RecordLease(lease, deadline, found)


def acknowledge(
    *,
    queue: RecordQueue,
    lease: str,
    message_ids: Sequence[str] | None = None,
    now: datetime,
) -> int:
    """These records, or all of the lease, are safe with their holder; how many were left.

    A lease whose deadline is over can still be acknowledged while nobody else has its records.
    A repeat answers 0. Raises ``NoSuchLease``: none of it is there any more, by its name.
    """
    return _end(queue, lease, message_ids, None)


def give_back(
    *,
    queue: RecordQueue,
    lease: str,
    message_ids: Sequence[str] | None = None,
    now: datetime,
) -> int:
    """Whoever asks next gets these records, or all of the lease; how many. Raises as above."""
    return _end(queue, lease, message_ids, now)


def _end(
    queue: RecordQueue, lease: str, message_ids: Sequence[str] | None, free_at: datetime | None
) -> int:
    rows = HandedRecord.objects.filter(queue=queue, lease=lease) if lease else None
    if rows is None or not rows.exists():
        raise NoSuchLease
    if message_ids is not None:
        rows = rows.filter(message_id__in=list(message_ids))
    if free_at is None:
        return rows.delete()[0]
    return rows.update(lease="", holder="", deadline_at=free_at)


def forget_expired(*, now: datetime, limit: int = 10_000) -> int:
    """Delete records that expired while nobody had acknowledged them; how many."""
    due = HandedRecord.objects.filter(expires_at__lte=now).values_list("pk", flat=True)[:limit]
    return HandedRecord.objects.filter(pk__in=list(due)).delete()[0]


# --- rows -----------------------------------------------------------------------------------------


def _free_rows(queue: RecordQueue, count: int, now: datetime) -> list[HandedRecord]:
    """Given back, or over their deadline. Inside a transaction: they are locked."""
    free = HandedRecord.objects.filter(queue=queue, deadline_at__lte=now)
    return list(
        free.exclude(expires_at__lte=now).select_for_update(skip_locked=True, of=("self",))[:count]
    )


def _record(row: HandedRecord) -> Record:
    return Record(row.message_id, bytes(row.body), row.expires_at)


def _lease_from_broker(
    queue: RecordQueue, count: int, lease: str, holder: str, deadline: datetime, now: datetime
) -> list[Record]:
    with _taking(queue.name, count) as (subscription, deliveries):
        found = [_of_delivery(each) for each in _living(deliveries, now)]
        names = [each.message_id for each in found]
        with transaction.atomic():
            # An acknowledgement that got lost: these are in the rows already, maybe leased.
            known = set(
                HandedRecord.objects.filter(queue=queue, message_id__in=names).values_list(
                    "message_id", flat=True
                )
            )
            found = [each for each in _distinct(found) if each.message_id not in known]
            HandedRecord.objects.bulk_create(
                HandedRecord(
                    queue=queue,
                    message_id=each.message_id,
                    body=each.body,
                    expires_at=each.expires_at,
                    lease=lease,
                    holder=holder[:150],
                    deadline_at=deadline,
                )
                for each in found
            )
        failpoints.hit("sources.records_leased")
        subscription.ack(deliveries)
    return found


# --- the broker -----------------------------------------------------------------------------------


@contextmanager
def _taking(queue: str, count: int) -> Iterator[tuple[Subscription, list[Delivery]]]:
    """Up to ``count`` deliveries; what the body does not settle goes back. Raises ``BrokerAway``.

    A queue that does not exist yet is empty.
    """
    try:
        broker = shared_broker()
        broker.declare(QueueSpec(queue))
        subscription = broker.subscribe(queue, prefetch=count)
    except BrokerError as error:
        raise BrokerAway from error
    try:
        yield subscription, _deliveries(broker, subscription, queue, count)
    except BrokerError as error:
        raise BrokerAway from error
    finally:
        subscription.close()


def _deliveries(
    broker: Broker, subscription: Subscription, queue: str, count: int
) -> list[Delivery]:
    deadline = time.monotonic() + _WAIT_SECONDS
    found: list[Delivery] = []
    while len(found) < count:
        some = subscription.take(count - len(found), timeout=0.02)
        found += some
        if not some:
            # Those that have expired go when they reach the head, so what is said to wait may not.
            try:
                waiting = broker.depth(queue).ready
            except Unroutable:
                waiting = 0
            if not waiting or time.monotonic() >= deadline:
                break
    return found


def _of_delivery(delivery: Delivery) -> Record:
    at = delivery.headers.get(EXPIRES_AT)
    expires_at = None
    if isinstance(at, int) and not isinstance(at, bool) and 0 < at < 2**47:
        expires_at = datetime.fromtimestamp(at / 1000, UTC)
    # Somebody else's message may have no id.
    name = delivery.message_id or secrets.token_hex(16)
    return Record(name[:255], delivery.body, expires_at)


def _living(deliveries: Sequence[Delivery], now: datetime) -> list[Delivery]:
    """Without those that expired on their way out."""
    return [
        each
        for each in deliveries
        if (record := _of_delivery(each)).expires_at is None or record.expires_at > now
    ]


def _distinct(records: Sequence[Record]) -> list[Record]:
    return list({each.message_id: each for each in records}.values())
