"""Which messages a consumer has already dealt with."""

from __future__ import annotations

from django.db import IntegrityError, transaction

from apps.runtime.models import ProcessedMessage


def claim_message(*, consumer: str, message_id: str) -> bool:
    """Whether this message is new to ``consumer``; call it in the transaction of its effect.

    True: nobody has dealt with it, and once the caller commits, nobody will again. False: it was
    dealt with before; acknowledge it and do nothing. While another process is at the same
    message, PostgreSQL makes this wait for how that ends. A message without an id is new.
    """
    if not message_id:
        return True
    try:
        with transaction.atomic():
            ProcessedMessage.objects.create(consumer=consumer, message_id=message_id)
    except IntegrityError:
        return False
    return True
