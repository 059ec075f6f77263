"""Dead letters: from the broker's dead queue into the database, and on by a person's decision."""

from __future__ import annotations

import math
import re
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

# A message may say to which project it belongs; its dead letter is then shown there.
HEADER_PROJECT = "x-crawlyard-project"
# How many dead letters may be in memory at once; each may have the broker's largest body.
PREFETCH = 20

_OWN_HEADERS = frozenset({HEADER_REASON, HEADER_QUEUE, HEADER_DIED_AT})
# What PostgreSQL cannot store in text: NUL and lone surrogates.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_LARGEST_ID = 2**63 - 1


def subscribe_dead_letters(broker: Broker) -> Subscription:
    """What ``store_dead_letters`` reads from."""
    return broker.subscribe(DEAD_QUEUE, prefetch=PREFETCH)


def store_dead_letters(
    subscription: Subscription,
    *,
    limit: int = PREFETCH,
    timeout: float = 0.0,
    now: datetime | None = None,
) -> int:
    """Move up to ``limit`` dead letters into the database; returns how many were taken.

    They are acknowledged after the commit: one that is delivered again is stored once, because
    a death is known by message id, queue and time.
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
        # Delivered and not acknowledged, they would count against the prefetch limit until the end.
        subscription.requeue(deliveries)
        raise
    subscription.ack(deliveries)
    return len(deliveries)


@transaction.atomic
def requeue_dead_letter(
    *, letter: DeadLetter, actor_label: str, now: datetime | None = None
) -> None:
    """Send the message back to the queue where it died, once.

    It keeps its message id, so that a consumer that had processed it before it died (because an
    acknowledgement was lost, for example) recognises it. The caller writes the audit record.

    Raises:
        DeadLetterResolved: it was requeued or dropped before.
        DeadLetterHasNoQueue: its queue is unknown.
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
    """Mark the message as not needed. Raises ``DeadLetterResolved``."""
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
    # Without an id two equal messages look like one that was redelivered: keep both.
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
    # "?" and no wider character: names must still fit into the broker's 255 bytes.
    return _UNSTORABLE.sub("?", str(value))[:length]


def _storable(headers: Mapping[str, object]) -> dict[str, Any]:
    """The message's own headers, without the broker's notes, as JSON can hold them."""
    kept: dict[str, Any] = {}
    for name, value in headers.items():
        if name in _OWN_HEADERS:
            continue
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)
        kept[_text(name, 255)] = _UNSTORABLE.sub("?", value) if isinstance(value, str) else value
    return kept
