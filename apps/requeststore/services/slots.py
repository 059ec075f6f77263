"""Fetchers as owners of agents: ``fetcher:<n>`` at the center is the row n (seed S4.13)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from apps.agents.engine.owners import OwnerFacts
from apps.requeststore.models import FetcherSlot
from apps.runtime.queries import database_now

# A fetcher that has not been seen for so long has died: its agents go back.
ALIVE: Final = timedelta(seconds=60)
FORGET: Final = timedelta(days=1)


def use_slot(*, project_id: int, biz: str, name: str, now: datetime | None = None) -> int:
    """The number of this process for this biz; from now on it counts as alive."""
    slot, _created = FetcherSlot.objects.update_or_create(
        project_id=project_id, biz=biz, name=name, defaults={"seen_at": now or database_now()}
    )
    return slot.pk


def keep_slots(numbers: Iterable[int], *, now: datetime | None = None) -> None:
    """They are alive still. One query."""
    FetcherSlot.objects.filter(pk__in=list(numbers)).update(seen_at=now or database_now())


def leave_slots(numbers: Iterable[int]) -> None:
    """They want no agents any more. One query."""
    long_ago = database_now() - ALIVE - timedelta(seconds=1)
    FetcherSlot.objects.filter(pk__in=list(numbers)).update(seen_at=long_ago)


def forget_slots(*, now: datetime | None = None) -> int:
    """Delete those of processes that are gone for long; how many."""
    before = (now or database_now()) - FORGET
    return FetcherSlot.objects.filter(seen_at__lt=before).delete()[0]


def fetcher_owners(numbers: Iterable[int]) -> dict[int, OwnerFacts]:
    """What the center asks of them. Two queries."""
    since = database_now() - ALIVE
    rows = FetcherSlot.objects.filter(pk__in=set(numbers)).values_list(
        "pk", "project_id", "project__allowed_networks", "seen_at"
    )
    return {
        pk: OwnerFacts(project, seen_at >= since, tuple(networks or ()))
        for pk, project, networks, seen_at in rows
    }
