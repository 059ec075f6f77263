"""Celery tasks. The rows are the truth: a superfluous task does nothing."""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task

from apps.requeststore.services.rebalances import (
    REBALANCE_TASK,
    sweep_rebalances,
    work_on_rebalance,
)
from apps.requeststore.services.reextractions import (
    REEXTRACTION_TASK,
    sweep_reextractions,
    work_on_reextraction,
)
from apps.requeststore.services.scale_advice import decide_scale
from apps.requeststore.services.scale_webhook import send_scale
from apps.requeststore.services.store import shared_request_store
from apps.requeststore.services.upkeep import upkeep_once
from apps.runtime.queries import database_now

logger = logging.getLogger(__name__)


@shared_task(name="requeststore.upkeep")
def upkeep(**_later: Any) -> None:
    """Run upkeep: see ``services.upkeep``."""
    swept = upkeep_once(shared_request_store(), now=int(database_now().timestamp() * 1000))
    if swept:
        logger.info("upkeep of the request store: %s", swept)


@shared_task(name="requeststore.scale")
def scale(**_later: Any) -> None:
    """Decide the number of wanted fetchers and send it to the webhook."""
    send_scale(decide_scale())


@shared_task(name=REBALANCE_TASK)
def work_on(rebalance: int, **_later: Any) -> None:
    """Continue a re-balance for some seconds."""
    work_on_rebalance(int(rebalance))


@shared_task(name="requeststore.sweep_rebalances")
def sweep_quiet_rebalances(**_later: Any) -> None:
    """Wake re-balances that wait, or whose worker or task was lost."""
    woken = sweep_rebalances(now=database_now())
    if woken:
        logger.info("the sweep has woken workers for %d re-balances", woken)


@shared_task(name=REEXTRACTION_TASK)
def extract_again(reextraction: int, **_later: Any) -> None:
    """Continue a re-extraction for some seconds."""
    work_on_reextraction(int(reextraction))


@shared_task(name="requeststore.sweep_reextractions")
def sweep_quiet_reextractions(**_later: Any) -> None:
    """Wake re-extractions that wait, or whose worker or task was lost."""
    woken = sweep_reextractions(now=database_now())
    if woken:
        logger.info("the sweep has woken workers for %d re-extractions", woken)
