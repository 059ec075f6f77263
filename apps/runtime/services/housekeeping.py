"""Delete rows that are past their retention."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Q, QuerySet

from apps.runtime.models import Daemon, DeadLetter, IdempotencyKey, ProcessedMessage
from apps.runtime.queries import database_now
from apps.runtime.states import DEAD_LETTER_FINAL

# Longer than any message lives in a queue, so that a late redelivery is recognised.
KEEP_PROCESSED: Final = timedelta(days=7)
KEEP_IDEMPOTENCY_KEYS: Final = timedelta(days=1)
KEEP_DAEMONS: Final = timedelta(days=7)
KEEP_RESOLVED_DEAD_LETTERS: Final = timedelta(days=30)
# Most rows deleted by one statement, to keep locks short.
CHUNK: Final = 1000


@dataclass(frozen=True, slots=True)
class Pruned:
    """Number of deleted rows of each kind."""

    processed: int
    idempotency_keys: int
    daemons: int
    dead_letters: int

    @property
    def total(self) -> int:
        return self.processed + self.idempotency_keys + self.daemons + self.dead_letters


def prune(*, now: datetime | None = None) -> Pruned:
    """Delete expired rows; idempotent and safe to run concurrently."""
    now = now or database_now()
    silent = Q(beat_at__lt=now - KEEP_DAEMONS)
    resolved = Q(state__in=DEAD_LETTER_FINAL, resolved_at__lt=now - KEEP_RESOLVED_DEAD_LETTERS)
    return Pruned(
        processed=_delete(ProcessedMessage.objects.filter(at__lt=now - KEEP_PROCESSED)),
        idempotency_keys=_delete(
            IdempotencyKey.objects.filter(created_at__lt=now - KEEP_IDEMPOTENCY_KEYS)
        ),
        # A process that is silent for this long is gone, whatever state it reported.
        daemons=_delete(Daemon.objects.filter(silent)),
        dead_letters=_delete(DeadLetter.objects.filter(resolved)),
    )


def _delete(rows: QuerySet[Any]) -> int:
    total = 0
    while ids := list(rows.values_list("pk", flat=True)[:CHUNK]):
        # Repeat the condition: a row that has changed since must stay.
        deleted, _by_model = rows.filter(pk__in=ids).delete()
        if not deleted:
            break
        total += deleted
    return total
