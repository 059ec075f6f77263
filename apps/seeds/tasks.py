"""Celery tasks of this app. The database decides what is to be done: a surplus task does
nothing.
"""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task

from apps.runtime.queries import database_now
from apps.seeds.services.operations import OPERATION_TASK, sweep_operations, work_on_operation

logger = logging.getLogger(__name__)


@shared_task(name=OPERATION_TASK)
def work(operation: int, **_later: Any) -> None:
    """Work on an operation on seeds for one time slice."""
    work_on_operation(int(operation))


@shared_task(name="seeds.sweep_operations")
def sweep(**_later: Any) -> None:
    """Resume operations of dead workers, and those whose wake-up was lost."""
    woken = sweep_operations(now=database_now())
    if woken:
        logger.info("the sweep has woken workers for %d operations on seeds", woken)
