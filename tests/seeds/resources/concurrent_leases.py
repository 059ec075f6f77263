"""Many threads lease, use and give back at once: run by test_on_postgres.py on either database."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from apps.seeds.errors import SeedsRefusal
from apps.seeds.models import Resource
from apps.seeds.services.resources import Leased, give_back, lease, release_expired
from apps.seeds.states import ResourceState
from tests.seeds.resources.factories import make_pool, make_resource
from yardkit.protocol import ResourceOutcome

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 8
ROUNDS = 15


def together(work: Callable[[int], Any]) -> list[Any]:
    """Call it in ``THREADS`` threads at once, each with a connection of its own."""
    barrier = threading.Barrier(THREADS)
    results: list[Any] = [RuntimeError("it did not end")] * THREADS

    def run(number: int) -> None:
        try:
            barrier.wait(30)
            results[number] = work(number)
        except Exception as error:  # noqa: BLE001 - shown below
            results[number] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    wrong = [each for each in results if isinstance(each, Exception)]
    assert not [each for each in wrong if not isinstance(each, SeedsRefusal)], wrong
    return results


def test_one_resource_is_never_in_two_hands() -> None:
    """Fewer resources than threads: whoever holds one marks it, and finds no other mark."""
    pool = make_pool(cool_down_seconds=0)
    for _ in range(THREADS - 3):
        make_resource(pool)
    held: set[int] = set()
    guard = threading.Lock()
    broken: list[int] = []

    def work(number: int) -> int:
        dice = random.Random(number)
        taken = 0
        while taken < ROUNDS:
            got = lease(pool=pool, owner=f"run:{number}:x", now=timezone.now())
            if not isinstance(got, Leased):
                # As clients do. Who only asks and asks keeps the one place that SQLite has for
                # those who write from who has something to give back, until he gives up.
                threading.Event().wait(dice.random() / 50)
                continue
            taken += 1
            with guard:
                if got.resource.pk in held:
                    broken.append(got.resource.pk)
                held.add(got.resource.pk)
            threading.Event().wait(dice.random() / 200)
            with guard:
                held.discard(got.resource.pk)
            done = give_back(
                project=pool.project_id,
                resource=got.resource.pk,
                lease=got.lease,
                outcome=dice.choice([ResourceOutcome.OK, ResourceOutcome.NOT_OK]),
                now=timezone.now(),
                owner=f"run:{number}:x",
            )
            assert done.code == "returned"
        return taken

    assert together(work) == [ROUNDS] * THREADS
    assert broken == []
    rows = Resource.objects.filter(pool=pool)
    assert {row.state for row in rows} == {ResourceState.FREE}
    assert sum(row.used_count for row in rows) == THREADS * ROUNDS
    assert sum(row.succeeded_count + row.failed_count for row in rows) == THREADS * ROUNDS
    assert sum(row.lease for row in rows) == THREADS * ROUNDS


def test_all_get_one_at_the_first_try_where_there_are_enough() -> None:
    pool = make_pool()
    for _ in range(3 * THREADS):
        make_resource(pool)
    for _ in range(3):
        got = together(lambda n: lease(pool=pool, owner=f"run:{n}:x", now=timezone.now()))
        assert all(isinstance(each, Leased) for each in got), got
    twice = Counter(Resource.objects.filter(pool=pool).values_list("lease", flat=True))
    assert twice == {1: 3 * THREADS}


def test_the_same_call_at_once_gets_one_resource() -> None:
    for number in range(5):
        pool = make_pool()
        for _ in range(THREADS):
            make_resource(pool)
        got = together(lambda _: lease(pool=pool, owner="run:1:x", now=timezone.now(), key="k"))  # noqa: B023
        assert {each.resource.pk for each in got if isinstance(each, Leased)}, number
        leased = Resource.objects.filter(pool=pool, state=ResourceState.LEASED)
        assert leased.count() == 1
        assert {each.resource.pk for each in got} == {leased.get().pk}


def test_what_ran_out_is_taken_back_once() -> None:
    pool = make_pool()
    begin = timezone.now() - timedelta(hours=1)
    for _ in range(THREADS):
        make_resource(pool)
        assert isinstance(lease(pool=pool, owner="x", now=begin, seconds=60), Leased)

    def work(number: int) -> Any:
        if number % 2:
            return release_expired(now=timezone.now())
        return lease(pool=pool, owner=f"run:{number}:x", now=timezone.now())

    results = together(work)
    # Who came while the others were at it was told to come again.
    got = [each for each in results if isinstance(each, Leased)]
    release_expired(now=timezone.now())
    rows = list(Resource.objects.filter(pool=pool))
    assert {row.expired_count for row in rows} == {1}
    assert sum(row.state == ResourceState.LEASED for row in rows) == len(got)
    assert sorted(row.lease for row in rows) == [2] * (THREADS - len(got)) + [3] * len(got)
