"""Worker numbers: one holder each, whatever dies or sleeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from apps.runtime.errors import LeaseLost, NoFreeNumber
from apps.runtime.models import WorkerLease
from apps.runtime.services import DatabaseHighWater, lease_worker, release_lease, renew_lease
from yardkit.clock import ManualClock
from yardkit.snowflake import RESERVE_MS, Snowflake

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TTL = timedelta(seconds=30)
LATER = NOW + TTL + timedelta(seconds=1)


def lease(owner: str, now: datetime = NOW, numbers: int = 1024) -> WorkerLease:
    return lease_worker(purpose="ids", owner=owner, now=now, ttl=TTL, numbers=numbers)


@pytest.mark.django_db
@pytest.mark.covers("S4.8")
def test_living_holders_never_share_a_number() -> None:
    assert [lease(f"p{i}").number for i in range(4)] == [0, 1, 2, 3]
    assert lease_worker(purpose="other", owner="p0", now=NOW, ttl=TTL).number == 0


@pytest.mark.django_db
def test_who_asks_again_gets_its_number_back_as_a_new_generation() -> None:
    first = lease("p1")
    again = lease("p1")
    assert (again.number, again.generation) == (first.number, first.generation + 1)
    with pytest.raises(LeaseLost):
        renew_lease(lease=first, now=NOW, ttl=TTL)
    assert renew_lease(lease=again, now=LATER, ttl=TTL).expires_at == LATER + TTL


@pytest.mark.django_db
def test_an_expired_number_is_taken_only_when_no_fresh_one_is_left() -> None:
    lease("dead", numbers=2)
    assert lease("second", now=LATER, numbers=2).number == 1
    taken = lease("third", now=LATER, numbers=2)
    assert (taken.number, taken.generation) == (0, 2)
    with pytest.raises(NoFreeNumber):
        lease("fourth", now=LATER, numbers=2)


@pytest.mark.django_db
def test_a_late_holder_may_go_on_until_somebody_takes_its_number() -> None:
    slow = lease("slow", numbers=1)
    renew_lease(lease=slow, now=LATER, ttl=TTL)
    much_later = LATER + TTL + TTL
    lease("new", now=much_later, numbers=1)
    with pytest.raises(LeaseLost):
        renew_lease(lease=slow, now=much_later, ttl=TTL)


@pytest.mark.django_db
def test_a_released_number_is_free_and_a_stale_release_changes_nothing() -> None:
    first = lease("p1", numbers=1)
    release_lease(lease=first, now=NOW)
    second = lease("p2", numbers=1)
    release_lease(lease=first, now=NOW)
    with pytest.raises(NoFreeNumber):
        lease("p3", numbers=1)
    renew_lease(lease=second, now=NOW, ttl=TTL)


@pytest.mark.django_db
@pytest.mark.covers("S4.7", "S4.8")
def test_ids_go_on_above_the_mark_of_the_holder_before_whatever_the_clock_says() -> None:
    clock = ManualClock(NOW)
    first = lease("first", numbers=1)
    ids = Snowflake(first.number, DatabaseHighWater(first), clock=clock).next_many(5000)

    # It is killed, and somebody sets the clock back by an hour.
    clock.jump(-3600)
    second = lease("second", now=LATER, numbers=1)
    more = Snowflake(second.number, DatabaseHighWater(second), clock=clock).next_many(10)

    assert min(more) > max(ids)
    second.refresh_from_db()
    assert second.high_water_ms >= int(NOW.timestamp() * 1000) + RESERVE_MS


@pytest.mark.django_db
def test_who_lost_the_lease_cannot_give_out_ids_beyond_its_mark() -> None:
    clock = ManualClock(NOW)
    frozen = lease("frozen", numbers=1)
    generator = Snowflake(frozen.number, DatabaseHighWater(frozen), clock=clock)
    generator.next()
    new = lease("new", now=LATER, numbers=1)
    mark = DatabaseHighWater(new).load(0)

    clock.advance(60)
    with pytest.raises(LeaseLost):
        generator.next()
    with pytest.raises(LeaseLost):
        DatabaseHighWater(frozen).load(0)
    assert DatabaseHighWater(new).load(0) == mark


@pytest.mark.django_db
def test_a_mark_never_falls_and_belongs_to_one_number() -> None:
    store = DatabaseHighWater(lease("p1"))
    store.save(0, 2000)
    store.save(0, 1000)
    assert store.load(0) == 2000
    with pytest.raises(ValueError, match="the lease is for 0"):
        store.save(1, 3000)


@pytest.mark.django_db(transaction=True)
def test_a_mark_is_refused_where_a_rollback_could_undo_it() -> None:
    store = DatabaseHighWater(lease("p1"))
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        store.save(0, 1000)
