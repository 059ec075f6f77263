"""Transactional outbox: messages of committed transactions are published at least once.

A message is a row of the caller's transaction. On commit a thread of the process publishes it;
every daemon also wakes that thread periodically, to publish messages that a dead process or an
outage of the broker has left. The message id is stored with the row, so that consumers recognise
duplicates.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from django.db import transaction

from apps.runtime.errors import OutboxMessageGone
from apps.runtime.models import OutboxMessage
from apps.runtime.queries import database_now
from apps.runtime.services.relay import as_outgoing, wake_relay
from yardkit.broker.outgoing import check
from yardkit.protocol import AnyMessage, encode

Header = str | int | float | bool


def enqueue(
    *,
    key: str,
    body: bytes | AnyMessage,
    exchange: str = "",
    ttl_seconds: float | None = None,
    headers: Mapping[str, Header] | None = None,
    message_id: str = "",
    priority: int = 0,
    mandatory: bool = True,
) -> str:
    """Publish ``body`` if and when the caller's transaction commits; return the message id.

    A message id that already waits for the same queue is not added twice. After ``ttl_seconds``
    from now an unpublished message expires. A message that is not ``mandatory`` counts as sent even
    if no queue is bound.

    Raises TypeError or ValueError if no broker could carry this message.
    """
    if ttl_seconds is not None and ttl_seconds <= 0:
        raise ValueError(f"ttl_seconds {ttl_seconds}: the message would be void at once")
    message = OutboxMessage(
        message_id=message_id or uuid.uuid4().hex,
        exchange=exchange,
        key=key,
        body=body if isinstance(body, bytes) else encode(body),
        headers=dict(headers or {}),
        ttl_seconds=ttl_seconds,
        priority=priority,
        mandatory=mandatory,
        created_at=database_now(),
    )
    check([as_outgoing(message, message.created_at)])
    OutboxMessage.objects.bulk_create([message], ignore_conflicts=True)
    transaction.on_commit(wake_relay)
    return message.message_id


def retry_outbox_message(*, message: OutboxMessage) -> None:
    """Publish the message at once after the commit. Raises ``OutboxMessageGone``.

    If a relay is publishing it at this moment it may be sent twice, under the same id.
    """
    if not OutboxMessage.objects.filter(pk=message.pk).update(next_try_at=None):
        raise OutboxMessageGone
    message.next_try_at = None
    transaction.on_commit(wake_relay)


def drop_outbox_message(*, message: OutboxMessage) -> None:
    """Delete the message unpublished. Raises ``OutboxMessageGone``."""
    if not OutboxMessage.objects.filter(pk=message.pk).delete()[0]:
        raise OutboxMessageGone
