"""The id service: leased worker ids, marks that survive, clocks that jump."""

from __future__ import annotations

import itertools
import os
from datetime import timedelta

import pytest
from django.db import OperationalError

from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.services import ids as module
from apps.requeststore.services.ids import LEASE, PURPOSE, RENEW_SECONDS, IdGenerator
from apps.runtime.models import WorkerLease
from apps.runtime.services import database_now, lease_worker
from yardkit.clock import ManualClock
from yardkit.snowflake import MAX_WORKER, decode

pytestmark = pytest.mark.django_db

JUMPS = [-3600.0, 24 * 3600.0, *[-1.0] * 50]


@pytest.mark.covers("S4.7", "S4.8")
def test_a_million_ids_while_the_clock_jumps_rise_and_never_repeat() -> None:
    clock = ManualClock()
    services = [IdGenerator(clock=clock), IdGenerator(clock=clock)]
    found: list[list[int]] = [[], []]
    jumps = iter(JUMPS)
    for round_ in range(500):
        for service, mine in zip(services, found, strict=True):
            mine.extend(service.next_many(1000))
        clock.advance(0.003)
        if round_ % 9 == 8:
            clock.jump(next(jumps, 0.0))
    assert next(jumps, None) is None, "not every jump was made"
    for mine in found:
        assert all(one < other for one, other in itertools.pairwise(mine))
    assert len({*found[0], *found[1]}) == 1_000_000
    assert {decode(mine[0])[1] for mine in found} == {0, 1}


@pytest.mark.covers("S4.8")
def test_a_killed_process_goes_on_after_its_mark_also_when_the_clock_went_back() -> None:
    clock = ManualClock()
    killed = IdGenerator(clock=clock, owner="killed")
    before = killed.next_many(5000)
    WorkerLease.objects.update(expires_at=database_now() - timedelta(seconds=1))
    # All other numbers are in somebody's hands, so the next process gets the same one.
    later = database_now() + timedelta(hours=1)
    WorkerLease.objects.bulk_create(
        WorkerLease(purpose=PURPOSE, number=number, owner=str(number), expires_at=later)
        for number in range(1, MAX_WORKER + 1)
    )
    clock.jump(-3600)
    after = IdGenerator(clock=clock).next_many(5000)
    assert decode(after[0])[1] == decode(before[0])[1]
    assert min(after) > max(before)


@pytest.mark.covers("S4.8")
def test_who_lost_its_number_leases_another_one() -> None:
    clock = ManualClock()
    frozen = IdGenerator(clock=clock)
    first = frozen.next_many(10)
    WorkerLease.objects.update(owner="somebody else", generation=99)
    clock.advance(RENEW_SECONDS + 1)
    second = frozen.next_many(10)
    assert decode(first[0])[1] != decode(second[0])[1]
    assert not set(first) & set(second)


def test_the_lease_is_renewed_while_ids_are_wanted() -> None:
    clock = ManualClock()
    ids = IdGenerator(clock=clock)
    ids.next_many(1)
    WorkerLease.objects.update(expires_at=database_now())
    ids.next_many(1)
    assert WorkerLease.objects.get().expires_at <= database_now()
    clock.advance(RENEW_SECONDS)
    ids.next_many(1)
    lease = WorkerLease.objects.get()
    assert lease.expires_at > database_now() + LEASE / 2
    assert lease.generation == 1


def test_a_number_that_is_given_back_is_the_next_ones() -> None:
    ids = IdGenerator()
    first = ids.next_many(1)
    ids.close()
    assert ids.worker is None
    assert WorkerLease.objects.get().expires_at <= database_now()
    assert ids.next_many(1) > first


@pytest.mark.covers("S4.8")
def test_a_forked_child_gets_a_number_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = IdGenerator()
    parent = ids.next_many(3)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    child = ids.next_many(3)
    assert decode(parent[0])[1] != decode(child[0])[1]


def test_all_numbers_taken_and_a_database_that_is_away_are_told_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(3):
        lease_worker(purpose="few", owner=str(number), ttl=LEASE, numbers=3)
    monkeypatch.setattr(module, "PURPOSE", "few")
    monkeypatch.setattr(
        module, "lease_worker", lambda **given: lease_worker(**{**given, "numbers": 3})
    )
    with pytest.raises(RequestStoreUnavailable, match="worker ids"):
        IdGenerator().next_many(1)

    def away(**_given: object) -> None:
        raise OperationalError("no route")

    monkeypatch.setattr(module, "lease_worker", away)
    with pytest.raises(RequestStoreUnavailable, match="database"):
        IdGenerator().next_many(1)
