"""Number of fetchers needed: scales up at once, down after ten minutes of lower need."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.db import transaction

from apps.queuestats.services import record_gauges
from apps.requeststore.engine.forecast import settled
from apps.requeststore.models import ScaleState
from apps.requeststore.queries.outlook import (
    FETCHERS,
    BizStatus,
    BizStatuses,
    capacity_key,
    standings,
)
from apps.requeststore.services.forecast_text import sentence

# Seconds of lower need before scaling down.
LESS_AFTER_SECONDS: Final = 600.0
MOST_CAPACITIES: Final = 5000


@dataclass(frozen=True, slots=True)
class BizAdvice:
    """Needs of one biz. ``eta_seconds``: None unless the backlog will be done."""

    project: int
    project_name: str
    biz: str
    backlog: int
    created_per_second: float | None
    processed_per_second: float | None
    per_fetcher_per_second: float | None
    outlook: str
    lateness: str
    eta_seconds: float | None
    needed: int
    reason: str


@dataclass(frozen=True, slots=True)
class Advice:
    """Running and wanted fetchers; ``most``: FETCHERS_MAX.

    ``needed``: the present need, before limits and delay.
    """

    running: int
    wanted: int
    needed: int
    most: int
    bizzes: list[BizAdvice]
    at: datetime

    def as_dict(self) -> dict[str, Any]:
        """Return it for REST, the webhook and ``manage.py scale --json``."""
        return {
            "running": self.running,
            "wanted": self.wanted,
            "needed": self.needed,
            "most": self.most,
            "at": self.at,
            "bizzes": [
                {name: getattr(biz, name) for name in BizAdvice.__slots__} for biz in self.bizzes
            ],
        }


def wanted_fetchers(now: datetime | None = None) -> Advice:
    """Return the current advice; writes nothing."""
    return advice_of(standings(now=now))


def advice_of(found: BizStatuses) -> Advice:
    """Return the advice for these standings."""
    needs = [(float(at), int(number)) for at, number in found.state.needs]
    need = _need(found)
    wanted = settled(needs, need, now=found.now.timestamp(), seconds=LESS_AFTER_SECONDS)
    return _advice(found, need, wanted)


def decide_scale(now: datetime | None = None) -> Advice:
    """Store the wanted number and its gauges.

    Called by one task every ten seconds; concurrent calls are harmless.
    """
    bizzes = standings(now=now)
    need = _need(bizzes)
    with transaction.atomic():
        ScaleState.objects.get_or_create(pk=1)
        state = ScaleState.objects.select_for_update().get(pk=1)
        needs = [(float(at), int(number)) for at, number in state.needs]
        wanted = settled(needs, need, now=bizzes.now.timestamp(), seconds=LESS_AFTER_SECONDS)
        advice = _advice(bizzes, need, wanted)
        if state.wanted != advice.wanted or state.changed_at is None:
            state.changed_at = bizzes.now
            # A new number is sent at once, whatever the state of the previous delivery.
            state.tries, state.next_try_at = 0, None
        state.needs = [[at, number] for at, number in needs]
        state.capacities = _capacities(state.capacities, bizzes.bizzes)
        state.wanted, state.running = advice.wanted, advice.running
        state.decided_at = bizzes.now
        state.save()
    record_gauges(_gauges(bizzes, advice), now=bizzes.now)
    return advice


def _need(found: BizStatuses) -> int:
    """Return the largest need of a biz: each fetcher serves all bizzes."""
    return max((biz.forecast.needed for biz in found.bizzes if biz.plan.enabled), default=1)


def _advice(found: BizStatuses, need: int, wanted: int) -> Advice:
    most = settings.FETCHERS_MAX
    return Advice(
        running=found.fetchers,
        wanted=max(1, min(most, wanted)),
        needed=need,
        most=most,
        bizzes=[_of_biz(biz, found.now) for biz in found.bizzes],
        at=found.now,
    )


def _of_biz(each: BizStatus, now: datetime) -> BizAdvice:
    return BizAdvice(
        project=each.project_id,
        project_name=each.project,
        biz=each.biz,
        backlog=each.facts.backlog,
        created_per_second=_rounded(each.facts.created),
        processed_per_second=_rounded(each.facts.processed),
        per_fetcher_per_second=_rounded(each.forecast.capacity),
        outlook=each.forecast.outlook.value,
        lateness=each.forecast.lateness.value,
        eta_seconds=each.forecast.eta_seconds,
        needed=each.forecast.needed,
        reason=sentence(each.forecast, each.facts, now=now),
    )


def _rounded(rate: float | None) -> float | None:
    """Round to the precision of the measurement."""
    return None if rate is None else round(rate, 3)


def _capacities(known: dict[str, float], bizzes: list[BizStatus]) -> dict[str, float]:
    """Return measured capacities, kept for idle times, of existing bizzes."""
    measured = {}
    for biz in bizzes[:MOST_CAPACITIES]:
        key = capacity_key((biz.project_id, biz.biz))
        capacity = biz.forecast.capacity if biz.forecast.measured else known.get(key)
        if capacity:
            measured[key] = capacity
    return measured


def _gauges(found: BizStatuses, advice: Advice) -> dict[tuple[str, int | None, str], float]:
    """Record the gauges that no other part measures, see ``apps.requeststore.gauges``.

    Fetchers are measured here, because forecasts need their mean.
    """
    gauges: dict[tuple[str, int | None, str], float] = {
        (FETCHERS.name, FETCHERS.project, FETCHERS.label): float(advice.running)
    }
    for biz in found.bizzes:
        if biz.queue is None or biz.queue.problem:
            continue
        place = biz.project_id, biz.biz
        gauges["queue.waiting", *place] = biz.queue.waiting
        if biz.queue.memory_bytes is not None:
            gauges["queue.memory_bytes", *place] = biz.queue.memory_bytes
    return gauges
