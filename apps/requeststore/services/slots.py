"""Fetchers as owners of agents: ``fetcher:<n>`` at the center is row n."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from apps.agents.engine.owners import OwnerFacts
from apps.requeststore.models import FetcherSlot
from apps.runtime.queries import database_now

# Seconds without a sign of life after which a fetcher counts as dead and its agents are released.
ALIVE: Final = timedelta(seconds=60)
FORGET: Final = timedelta(days=1)


def use_slot(*, project_id: int, biz: str, name: str, now: datetime | None = None) -> int:
    """Return the number of this process for this biz, and mark it as alive."""
    slot, _created = FetcherSlot.objects.update_or_create(
        project_id=project_id, biz=biz, name=name, defaults={"seen_at": now or database_now()}
    )
    return slot.pk


def keep_slots(numbers: Iterable[int], *, now: datetime | None = None) -> None:
    """Mark slots as alive. One query."""
    FetcherSlot.objects.filter(pk__in=list(numbers)).update(seen_at=now or database_now())


def leave_slots(numbers: Iterable[int]) -> None:
    """Mark slots as gone, so that their agents are released. One query."""
    long_ago = database_now() - ALIVE - timedelta(seconds=1)
    FetcherSlot.objects.filter(pk__in=list(numbers)).update(seen_at=long_ago)


def forget_slots(*, now: datetime | None = None) -> int:
    """Delete slots of processes that are gone for a day; return how many."""
    before = (now or database_now()) - FORGET
    return FetcherSlot.objects.filter(seen_at__lt=before).delete()[0]


def fetcher_owners(numbers: Iterable[int]) -> dict[int, OwnerFacts]:
    """Return what the center needs to know of these slots. Two queries."""
    since = database_now() - ALIVE
    rows = FetcherSlot.objects.filter(pk__in=set(numbers)).values_list(
        "pk", "project_id", "project__allowed_networks", "seen_at"
    )
    return {
        pk: OwnerFacts(project, seen_at >= since, tuple(networks or ()))
        for pk, project, networks, seen_at in rows
    }
