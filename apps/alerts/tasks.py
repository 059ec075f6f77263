"""Celery tasks of this app. The rows are the truth: a task too many does nothing."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task

from apps.alerts.services.delivering import send_notices
from apps.alerts.services.notices import SEND_TASK, forget_notices, wake_senders
from apps.alerts.services.unwatched import open_if_unwatched
from apps.runtime.queries import database_now

logger = logging.getLogger(__name__)


@shared_task(name=SEND_TASK)
def send(channel: int, **_later: Any) -> None:
    """Send what waits for one channel."""
    send_notices(channel=int(channel), now=database_now())


@shared_task(name="alerts.sweep_notices")
def sweep_notices(**_later: Any) -> None:
    """Wake a worker for each channel with notices that are due; see whether a monitor lives."""
    wake_senders(now=database_now())
    open_if_unwatched(now=database_now())


@shared_task(name="alerts.forget_notices")
def forget_old_notices(**_later: Any) -> None:
    """Delete tests of long ago."""
    forgotten = forget_notices(now=database_now())
    if forgotten:
        logger.info("%d tests of channels are forgotten", forgotten)
