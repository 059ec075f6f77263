"""Celery tasks of this app. A task only calls a service, and may run twice or not at all."""

from __future__ import annotations

import logging
from typing import Any, Final

from celery import shared_task
from django.conf import settings

from apps.routing.services import delete_old_reports, sweep_ledger
from apps.runtime.queries import database_now

logger = logging.getLogger(__name__)

# Rounds per call: enough for the counter changes of a busy minute, few enough to end soon.
_ROUNDS: Final = 20


@shared_task(name="routing.sweep_ledger")
def sweep(**_later: Any) -> None:
    """Fold counters, merge value pages, and delete old items and reports."""
    now = database_now()
    forgotten = 0
    for _ in range(_ROUNDS):
        swept = sweep_ledger(now=now, days=settings.ROUTING_LEDGER_DAYS)
        forgotten += swept.forgotten
        if not swept:
            break
    delete_old_reports(now=now)
    if forgotten:
        logger.info("old items deleted: count=%d days=%d", forgotten, settings.ROUTING_LEDGER_DAYS)
