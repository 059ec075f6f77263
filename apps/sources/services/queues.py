"""Ownership and size of record queues."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, F, Q

from apps.runtime.services import shared_broker
from apps.sources.engine.validation import bad_queue
from apps.sources.errors import BrokerUnreachable, NoSuchQueue, QueueNeeded, QueueOwnedElsewhere
from apps.sources.models import HandedRecord, PublishedSpan, RecordQueue
from apps.sources.queries import book
from yardkit.broker import BrokerError, QueueSpec


@dataclass(frozen=True, slots=True)
class QueueSize:
    """Size of a record queue.

    ``waiting`` messages are in the broker; about ``expired`` of them have expired but wait behind
    unexpired ones. ``leased`` are with consumers, ``returned`` go to the next caller.
    """

    queue: str
    waiting: int
    expired: int
    leased: int
    returned: int

    @property
    def live(self) -> int:
        """Number of records that a consumer can get."""
        return self.waiting - self.expired + self.returned


def claim_queue(*, project_id: int, name: str) -> RecordQueue:
    """Return the queue and make the project its owner. Raises ``QueueOwnedElsewhere``."""
    if bad_queue(name):
        raise QueueOwnedElsewhere(fields={"queue": [name]})
    row, _made = RecordQueue.objects.get_or_create(name=name, defaults={"project_id": project_id})
    if row.project_id != project_id:
        raise QueueOwnedElsewhere(fields={"queue": [name]})
    return row


def queue_of_project(*, project_id: int, name: str = "") -> RecordQueue:
    """Return the queue of that name, or the only queue of the project's sources.

    Raises ``NoSuchQueue``, ``QueueNeeded``, ``QueueOwnedElsewhere``.
    """
    settings = book(project_id)
    # Also a queue that no source names any more: it may still hold records.
    mine = set(RecordQueue.objects.filter(project_id=project_id).values_list("name", flat=True))
    wanted = {source.queue for source in settings.sources.values()}
    if not name:
        names = wanted or mine or {settings.defaults.queue}
        if len(names) > 1:
            raise QueueNeeded(fields={"queue": sorted(names)})
        (name,) = names
        if name not in wanted | mine:
            raise NoSuchQueue
    elif name not in wanted | mine:
        raise NoSuchQueue(fields={"queue": [name[:200]]})
    return claim_queue(project_id=project_id, name=name)


@transaction.atomic
def note_published(*, queue: RecordQueue, count: int, ttl_seconds: float, now: datetime) -> None:
    """Count published records; runs in the transaction that stores the batch."""
    if not count:
        return
    minute = now.replace(second=0, microsecond=0)
    at = now + timedelta(seconds=ttl_seconds)
    # Records count as expired once the whole span has.
    expires_at = at if ttl_seconds < 60 else _next_minute(at)
    spans = PublishedSpan.objects.filter(queue=queue, minute=minute, expires_at=expires_at)
    if not spans.update(count=F("count") + count):
        span, made = PublishedSpan.objects.get_or_create(
            queue=queue, minute=minute, expires_at=expires_at, defaults={"count": count}
        )
        if not made:
            PublishedSpan.objects.filter(pk=span.pk).update(count=F("count") + count)


def queue_size(*, queue: RecordQueue, now: datetime) -> QueueSize:
    """Return the size of a queue. Raises ``BrokerUnreachable``."""
    try:
        broker = shared_broker()
        broker.declare(QueueSpec(queue.name))
        waiting = broker.depth(queue.name).ready
    except BrokerError as error:
        raise BrokerUnreachable from error
    living = HandedRecord.objects.filter(queue=queue, done=False).exclude(expires_at__lte=now)
    handed = living.aggregate(
        leased=Count("pk", filter=Q(deadline_at__gt=now)),
        returned=Count("pk", filter=Q(deadline_at__lte=now)),
    )
    # The embedded broker itself leaves out expired messages.
    counts_dead = not broker.url.startswith("sqlite:")
    expired = _expired_behind(queue, waiting, now) if counts_dead else 0
    return QueueSize(queue.name, waiting, expired, handed["leased"], handed["returned"])


def prune_spans(*, now: datetime) -> int:
    """Delete spans whose records expired more than an hour ago."""
    old = PublishedSpan.objects.filter(expires_at__lte=now - timedelta(hours=1))
    forgotten = 0
    for queue in RecordQueue.objects.filter(pk__in=old.values("queue")):
        try:
            waiting = shared_broker().depth(queue.name).ready
        except BrokerError:
            continue
        oldest = _oldest_that_waits(queue, waiting)
        forgotten += old.filter(queue=queue, minute__lt=oldest).delete()[0]
    return forgotten


def _expired_behind(queue: RecordQueue, waiting: int, now: datetime) -> int:
    """Return how many of the newest ``waiting`` records have expired."""
    dead, left = 0, waiting
    for expires_at, count in _newest_first(queue):
        if left <= 0:
            break
        some = min(left, count)
        left -= some
        if expires_at <= now:
            dead += some
    return dead


def _oldest_that_waits(queue: RecordQueue, waiting: int) -> datetime:
    spans = PublishedSpan.objects.filter(queue=queue).order_by("-minute", "-pk")
    oldest = None
    for minute, count in spans.values_list("minute", "count").iterator():
        oldest = minute
        waiting -= count
        if waiting <= 0:
            break
    if oldest is None:
        raise LookupError("a queue with old spans has spans")
    return oldest


def _newest_first(queue: RecordQueue) -> list[tuple[datetime, int]]:
    spans = PublishedSpan.objects.filter(queue=queue).order_by("-minute", "-pk")
    return list(spans.values_list("expires_at", "count"))


def _next_minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0) + timedelta(minutes=1)
