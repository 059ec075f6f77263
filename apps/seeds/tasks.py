"""Celery tasks of this app. The rows are the truth: a task too many does nothing."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task

from apps.runtime.queries import database_now
from apps.seeds.services.operations import (
    OPERATION_TASK,
    sweep_operations,
    work_on_operation,
)

logger = logging.getLogger(__name__)


@shared_task(name=OPERATION_TASK)
def work(operation: int, **_later: Any) -> None:
    """Go on with an operation on seeds for a while."""
    work_on_operation(int(operation))


@shared_task(name="seeds.sweep_operations")
def sweep(**_later: Any) -> None:
    """Operations whose worker died, and those whose wake-up was lost."""
    woken = sweep_operations(now=database_now())
    if woken:
        logger.info("the sweep has woken workers for %d operations on seeds", woken)
