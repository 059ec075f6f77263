"""Celery tasks. Idempotent: the database rows are the truth, an extra task does nothing."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task

from apps.alerts.services.delivery import send_notices
from apps.alerts.services.monitor_absence import open_if_no_monitor
from apps.alerts.services.notices import SEND_TASK, prune_notices, wake_delivery_workers
from apps.runtime.queries import database_now

logger = logging.getLogger(__name__)


@shared_task(name=SEND_TASK)
def send(channel: int, **_later: Any) -> None:
    """Send the due notifications of one channel."""
    send_notices(channel=int(channel), now=database_now())


@shared_task(name="alerts.sweep_notices")
def sweep_notices(**_later: Any) -> None:
    """Start delivery for each channel with due notifications; open an incident if no monitor
    runs."""
    wake_delivery_workers(now=database_now())
    open_if_no_monitor(now=database_now())


@shared_task(name="alerts.forget_notices")
def forget_old_notices(**_later: Any) -> None:
    """Delete old notifications of tests and of ends of runs."""
    forgotten = prune_notices(now=database_now())
    if forgotten:
        logger.info("deleted %d notifications", forgotten)
