"""Celery tasks of this app: each one wakes a service, and may come twice or not at all."""

from __future__ import annotations

import logging
from typing import Any, Final

from celery import shared_task
from django.conf import settings

from apps.routing.services import forget_old_reports, sweep_ledger
from apps.runtime.queries import database_now

logger = logging.getLogger(__name__)

# A flood of a minute is swept away in one call, and no call takes long.
_ROUNDS: Final = 20


@shared_task(name="routing.sweep_ledger")
def sweep(**_later: Any) -> None:
    """Counters are folded, pages of values put together, old items and reports forgotten."""
    now = database_now()
    forgotten = 0
    for _ in range(_ROUNDS):
        swept = sweep_ledger(now=now, days=settings.ROUTING_LEDGER_DAYS)
        forgotten += swept.forgotten
        if not swept:
            break
    forget_old_reports(now=now)
    if forgotten:
        logger.info("%d routed items that ended long ago are forgotten", forgotten)
