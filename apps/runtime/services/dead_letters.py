"""Dead letters: stored from the dead-letter queue, then requeued or dropped by a person."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.db import transaction

from apps.runtime.errors import DeadLetterHasNoQueue, DeadLetterResolved
from apps.runtime.models import DeadLetter
from apps.runtime.queries import database_now
from apps.runtime.services.outbox import enqueue
from apps.runtime.states import DeadLetterState
from yardkit import failpoints
from yardkit.broker import Broker, Delivery, Subscription
from yardkit.broker.base import DEAD_QUEUE, HEADER_DIED_AT, HEADER_QUEUE, HEADER_REASON
from yardkit.names import UNSTORABLE

# Header that names the project of a message; its dead letter is shown in that project.
HEADER_PROJECT = "x-crawlyard-project"
# Most dead letters in memory at once; each may have the broker's maximum size.
PREFETCH = 20

_OWN_HEADERS = frozenset({HEADER_REASON, HEADER_QUEUE, HEADER_DIED_AT})
# Characters that PostgreSQL text cannot store: NUL and lone surrogates.
_LARGEST_ID = 2**63 - 1


def subscribe_dead_letters(broker: Broker) -> Subscription:
    """Return the subscription that ``store_dead_letters`` reads."""
    return broker.subscribe(DEAD_QUEUE, prefetch=PREFETCH)


def store_dead_letters(
    subscription: Subscription,
    *,
    limit: int = PREFETCH,
    timeout: float = 0.0,
    now: datetime | None = None,
) -> int:
    """Store up to ``limit`` dead letters in the database; return the number taken.

    They are acknowledged after the commit. A redelivered letter is stored once: message id, queue
    and time identify a death.
    """
    deliveries = subscription.take(limit, timeout=timeout)
    if not deliveries:
        return 0
    try:
        now = now or database_now()
        letters = [_letter(delivery, now) for delivery in deliveries]
        with transaction.atomic():
            DeadLetter.objects.bulk_create(letters, ignore_conflicts=True)
        failpoints.hit("dead_letters.after_commit")
    except BaseException:
        # Unacknowledged deliveries would count against the prefetch limit.
        subscription.requeue(deliveries)
        raise
    subscription.ack(deliveries)
    return len(deliveries)


@transaction.atomic
def requeue_dead_letter(
    *, letter: DeadLetter, actor_label: str, now: datetime | None = None
) -> None:
    """Publish the message to the queue where it died, once.

    It keeps its message id, so that a consumer that had already processed it ignores it. The caller
    writes the audit record.

    Raises ``DeadLetterResolved`` if it was requeued or dropped before, ``DeadLetterHasNoQueue`` if
    its queue is unknown.
    """
    if not letter.queue:
        raise DeadLetterHasNoQueue
    _resolve(letter, DeadLetterState.REQUEUED, actor_label, now or database_now())
    enqueue(
        key=letter.queue,
        body=bytes(letter.body),
        headers=letter.headers,
        message_id=letter.message_id,
    )


@transaction.atomic
def drop_dead_letter(*, letter: DeadLetter, actor_label: str, now: datetime | None = None) -> None:
    """Drop the message. Raises ``DeadLetterResolved``."""
    _resolve(letter, DeadLetterState.DROPPED, actor_label, now or database_now())


def _resolve(letter: DeadLetter, state: DeadLetterState, actor_label: str, now: datetime) -> None:
    changes = {"state": state, "resolved_by": actor_label[:200], "resolved_at": now}
    held = DeadLetter.objects.filter(pk=letter.pk, state=DeadLetterState.HELD)
    if not held.update(**changes):
        raise DeadLetterResolved
    for name, value in changes.items():
        setattr(letter, name, value)


def _letter(delivery: Delivery, now: datetime) -> DeadLetter:
    headers = delivery.headers
    died_at = _moment(headers.get(HEADER_DIED_AT))
    return DeadLetter(
        message_id=_message_id(delivery),
        queue=_text(headers.get(HEADER_QUEUE, ""), 255),
        reason=_text(headers.get(HEADER_REASON, ""), 1000),
        body=delivery.body,
        body_size=len(delivery.body),
        headers=_storable(headers),
        exchange=_text(delivery.exchange, 255),
        key=_text(delivery.key, 255),
        project=_project(headers.get(HEADER_PROJECT)),
        died_at=died_at or now,
        stored_at=now,
    )


def _message_id(delivery: Delivery) -> str:
    # Without an id equal messages look like redeliveries: keep both.
    return _text(delivery.message_id, 255) or f"unnamed-{uuid.uuid4().hex}"


def _moment(value: object) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _project(value: object) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST_ID
    return value if known and isinstance(value, int) else None


def _text(value: object, length: int) -> str:
    # Replaced by "?", one byte: names must still fit into the broker's 255 bytes.
    return UNSTORABLE.sub("?", str(value))[:length]


def _storable(headers: Mapping[str, object]) -> dict[str, Any]:
    """Return the message's headers as JSON values, without those that the broker added."""
    kept: dict[str, Any] = {}
    for name, value in headers.items():
        if name in _OWN_HEADERS:
            continue
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)
        kept[_text(name, 255)] = UNSTORABLE.sub("?", value) if isinstance(value, str) else value
    return kept
