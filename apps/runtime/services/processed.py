"""De-duplication of messages in consumers."""

from __future__ import annotations

from django.db import IntegrityError, transaction

from apps.runtime.models import ProcessedMessage


def claim_message(*, consumer: str, message_id: str) -> bool:
    """Return whether the message is new to ``consumer``; call it in the transaction of its effect.

    False: it was processed before; acknowledge it and do nothing. While another process works on
    the same message, PostgreSQL waits for the outcome. A message without an id is always new.
    """
    if not message_id:
        return True
    try:
        with transaction.atomic():
            ProcessedMessage.objects.create(consumer=consumer, message_id=message_id)
    except IntegrityError:
        return False
    return True
