"""What is PostgreSQL's own: many processes on one store, partitions, a server that goes away."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from apps.seeds.engine.errors import CallInWork, SeedStoreUnavailable, WrongSeedLease
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, Outcome
from apps.seeds.stores.base import Finish, Lease
from apps.seeds.stores.postgres import PostgresStore
from tests.plugins import markers
from tests.seeds.stores.calls import (
    DAY,
    FRONTIER,
    NOW,
    TODAY,
    add,
    books,
    codes,
    finish,
    keys,
    lease,
    seeds,
)
from tests.seeds.stores.tables import check_queue, make_older

pytestmark = pytest.mark.services

SERVICES = 4


@contextmanager
def opened(url: str, count: int = 1) -> Iterator[list[PostgresStore]]:
    """As many services on one database."""
    stores: list[PostgresStore] = []
    try:
        for _ in range(count):
            stores.append(PostgresStore(url, connections=2))
        yield stores
    finally:
        for store in stores:
            store.close()


def at_once(stores: list[PostgresStore], work: Callable[[int, PostgresStore], object]) -> None:
    """``work`` in a thread for each store, begun together; the first error is raised."""
    barrier = threading.Barrier(len(stores))

    def one(number: int) -> None:
        barrier.wait()
        work(number, stores[number])

    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(one, range(len(stores))))


@pytest.mark.covers("S3.2", "S3.18")
def test_services_that_add_the_same_seeds_store_each_once(postgres_url: str) -> None:
    names = [f"k{number}" for number in range(3000)]
    new: Counter[str] = Counter()

    def work(number: int, store: PostgresStore) -> None:
        # Each in an order of its own, so that all meet everywhere.
        mine = names if number % 2 else names[::-1]
        for start in range(0, len(mine), 250):
            batch = mine[start : start + 250]
            answers = store.add(FRONTIER, seeds(*batch, active_at=NOW), now=NOW)
            new.update(key for key, one in zip(batch, answers, strict=True) if one.new)

    with opened(postgres_url, SERVICES) as stores:
        at_once(stores, work)
        told = books(stores[0], TODAY)
    assert new == Counter(names)
    assert (told.added, told.duplicates) == (3000, 3000 * (SERVICES - 1))


@pytest.mark.covers("S3.15")
def test_services_that_lease_at_once_share_no_seed(postgres_url: str) -> None:
    done: Counter[str] = Counter()

    def work(number: int, store: PostgresStore) -> None:
        owner = f"w{number}"
        for turn in range(1000):
            taken = lease(store, 70, owner=owner)
            if not taken.seeds:
                return
            outcome = Outcome.FAILURE if number == 0 and turn < 5 else Outcome.SUCCESS
            done.update(keys(taken) if outcome == Outcome.SUCCESS else [])
            answers = set(codes(finish(store, taken, outcome, owner=owner)))
            assert answers == {"retried" if outcome == Outcome.FAILURE else "finished"}

    with opened(postgres_url, SERVICES) as stores:
        add(stores[0], *(f"k{number}" for number in range(2000)), max_retry=10)
        at_once(stores, work)
        told = books(stores[0])
    assert (told.added, told.succeeded, told.pending, told.leased) == (2000, 2000, 0, 0)
    assert set(done.values()) == {1}
    check_queue(postgres_url)


@pytest.mark.slow("1 s")
def test_leases_run_out_once_whoever_looks(postgres_url: str) -> None:
    expired: list[int] = []
    late: Counter[str] = Counter()

    def work(number: int, store: PostgresStore) -> None:
        if number == 0:
            # Finishes that come at the very moment at which their leases end.
            for taken in leases:
                late.update(codes(finish(store, taken, now=NOW + 60_000)))
        else:
            expired.append(store.expire(now=NOW + 60_000))

    with opened(postgres_url, SERVICES) as stores:
        add(stores[0], *(f"k{number}" for number in range(1000)))
        leases = [lease(stores[0], 10) for _ in range(100)]
        at_once(stores, work)
        told = books(stores[0])
    assert set(late) <= {"finished", "late"}
    assert sum(expired) == told.expired == told.pending == told.late == late["late"]
    assert told.succeeded == late["finished"] == 1000 - sum(expired)


def test_a_segment_dropped_by_another_service_begins_again(postgres_url: str) -> None:
    with opened(postgres_url, 2) as (one, other):
        add(one, "a", active_at=NOW)
        add(other, "b", active_at=NOW)
        assert one.drop_segment(FRONTIER, TODAY).added == 2
        assert add(other, "a", "b", active_at=NOW) == [True, True]
        assert books(one, TODAY).added == 2


@pytest.mark.slow("8 s")
@pytest.mark.timeout(300)
def test_segments_are_dropped_while_others_work_in_them(postgres_url: str) -> None:
    days = [NOW - day * DAY for day in range(3)]

    def work(number: int, store: PostgresStore) -> None:
        for turn in range(30):
            if number == 0:
                for one in store.segments(FRONTIER):
                    store.drop_segment(FRONTIER, one.segment, leased_too=True)
                continue
            names = [f"k{number}-{turn}-{index}" for index in range(20)]
            add(store, *names, active_at=days[turn % 3])
            taken = lease(store, 30, owner=f"w{number}")
            finishes = [
                Finish(one.segment, one.key, taken.generation, Outcome.SUCCESS)
                for one in taken.seeds
            ]
            answers = store.finish(FRONTIER, finishes, owner=f"w{number}", now=NOW)
            assert set(codes(answers)) <= {"finished", "unknown_key"}

    with opened(postgres_url, 3) as stores:
        at_once(stores, work)
        for one in stores[0].segments(FRONTIER):
            rows = list(stores[0].export(FRONTIER, one.segment))
            assert one.books.balance()
            assert one.books.added == len(rows)
        assert stores[0].expire(now=NOW + DAY) == sum(
            one.books.leased for one in stores[1].segments(FRONTIER)
        )
    check_queue(postgres_url)


def test_a_segment_is_a_partition(postgres_url: str) -> None:
    query = """
        SELECT inhparent::regclass::text, count(*) FROM pg_inherits
        WHERE inhparent IN ('crawlyard_seeds.known'::regclass, 'crawlyard_seeds.queue'::regclass)
        GROUP BY 1 ORDER BY 1
    """
    with opened(postgres_url) as (store,), psycopg.connect(postgres_url) as connection:
        connection.execute("SET search_path = crawlyard_seeds")
        add(store, "a", active_at=NOW)
        add(store, "a")
        assert connection.execute(query).fetchall() == [("known", 2), ("queue", 2)]
        connection.commit()
        store.drop_segment(FRONTIER, TODAY)
        assert connection.execute(query).fetchall() == [("known", 1), ("queue", 1)]


def test_books_are_exact_when_a_service_dies_inside_a_transaction(postgres_url: str) -> None:
    with opened(postgres_url, 2) as (one, other):
        add(one, "a", "b")
        with psycopg.connect(postgres_url) as connection:
            # As a service that has not committed when it is killed.
            connection.execute("SET search_path = crawlyard_seeds")
            connection.execute("UPDATE known SET state = 1")
            connection.execute("DELETE FROM queue")
            connection.execute("UPDATE books SET pending = 0, succeeded = 2")
            connection.rollback()
        assert keys(lease(other)) == ["a", "b"]
        assert books(other).leased == 2


def test_a_server_that_drops_its_connections_is_used_again(postgres_url: str) -> None:
    with opened(postgres_url) as (store,):
        add(store, "a")
        with psycopg.connect(markers.POSTGRES_URL, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [postgres_url.rpartition("/")[2]],
            )
        assert add(store, "a", "b") == [False, True]


@pytest.mark.slow("5 s")
def test_a_server_that_is_away_is_said_so() -> None:
    with pytest.raises(SeedStoreUnavailable, match="PostgreSQL: "):
        PostgresStore("postgresql://postgres@127.0.0.1:1/none?connect_timeout=1")


def test_a_schema_of_a_newer_version_is_refused(postgres_url: str) -> None:
    with opened(postgres_url):
        pass
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE crawlyard_seeds.store SET version = 99")
    with pytest.raises(SeedStoreUnavailable, match="version 99, this program reads 2"):
        PostgresStore(postgres_url)


class Standstill:
    """A lease that stands still in the middle of its transaction, in a thread of its own."""

    def __init__(self, store: PostgresStore, call: str) -> None:
        self._is_in, self._goes_on = threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self.lease = self._pool.submit(lease_of, store, call, check=self._stand)
        assert self._is_in.wait(20)

    def _stand(self) -> None:
        self._is_in.set()
        self._goes_on.wait()

    def __enter__(self) -> Standstill:
        return self

    def __exit__(self, *_: object) -> None:
        self.wake()
        self._pool.shutdown()

    def wake(self) -> None:
        self._goes_on.set()


def lease_of(store: PostgresStore, call: str, **more: Any) -> Lease:
    return store.lease(FRONTIER, owner="w1", limit=2, seconds=60, now=NOW, call=call, **more)


@pytest.mark.covers("S3.15", "S3.16")
def test_a_call_in_which_another_one_stands_still_gets_the_lease_of_that_one(
    postgres_url: str,
) -> None:
    with opened(postgres_url, 2) as (first, second):
        add(first, "a", "b", "c", "d", active_at=NOW)
        with Standstill(first, "c1") as still:
            with pytest.raises(CallInWork):
                lease_of(second, "c1", again=True)
            # Nobody else has to wait.
            assert keys(lease_of(second, "c2")) == ["a", "b"]
            still.wake()
            taken = still.lease.result(20)
        assert keys(taken) == ["c", "d"]
        assert lease_of(second, "c1", again=True) == taken
        assert books(second, TODAY).leased == 4


@pytest.mark.covers("S3.15", "S3.16")
def test_who_stands_still_in_a_call_for_long_has_leased_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.seeds.stores.postgres.leases.STILL_SECONDS", 0.2)
    with opened(postgres_url, 2) as (first, second):
        add(first, "a", "b", "c", "d", active_at=NOW)
        with Standstill(first, "c1") as still:
            deadline = time.monotonic() + 20
            while True:
                try:
                    taken = lease_of(second, "c1", again=True)
                    break
                except CallInWork:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
            still.wake()
            with pytest.raises(SeedStoreUnavailable):
                still.lease.result(20)
        assert keys(taken) == ["a", "b"]
        told = books(second, TODAY)
        assert (told.leased, told.pending) == (2, 2)


@pytest.mark.slow("2 s")
def test_a_store_of_the_version_before_is_taken_over(postgres_url: str) -> None:
    with opened(postgres_url) as (store,):
        add(store, "later", active_at=NOW + DAY)
        add(store, "a", "b", "c", "d", "e", "f", active_at=NOW, max_retry=10)
        finish(store, lease(store, 1))
        finish(store, lease(store, 1), Outcome.FAILURE)
        mine = store.lease(FRONTIER, owner="w1", limit=1, seconds=60, now=NOW, call="mine")
        given_back, overdue = lease(store, 1), lease(store, 1)
        segments = [one.segment for one in store.segments(FRONTIER)]
        before = {one: sorted(store.export(FRONTIER, one), key=repr) for one in segments}
        told = books(store, TODAY)
    make_older(postgres_url)
    with opened(postgres_url) as (store,):
        check_queue(postgres_url)
        assert before == {one: sorted(store.export(FRONTIER, one), key=repr) for one in segments}
        assert books(store, TODAY) == told
        assert store.recall(FRONTIER, owner="w1", call="mine") == mine
        assert store.give_back(FRONTIER, given_back.generation, owner="w1", now=NOW) == 1
        assert keys(lease(store, 1)) == keys(given_back) == ["d"]
        assert codes(finish(store, mine)) == ["finished"]
        assert store.next_due(FRONTIER, now=NOW) == NOW + DAY
        assert add(store, "a", "d", "g", active_at=NOW) == [False, False, True]
        assert keys(lease(store)) == ["f", "b", "g"]
        assert store.expire(now=NOW + DAY - 1) == 5
        assert keys(lease(store, now=NOW + DAY)) == ["e", "d", "f", "b", "g", "later"]
        assert keys(overdue) == ["e"]
    check_queue(postgres_url)


def test_a_process_of_the_version_before_can_change_nothing_more(postgres_url: str) -> None:
    with opened(postgres_url) as (store,):
        add(store, "a")
    make_older(postgres_url)
    with psycopg.connect(postgres_url) as older:
        older.execute("SET search_path = crawlyard_seeds")
        older.execute("SELECT state FROM seeds")
        older.commit()
        with opened(postgres_url), pytest.raises(psycopg.errors.UndefinedTable):
            older.execute("UPDATE seeds SET state = 4")


def test_a_lease_belongs_to_its_frontier(postgres_url: str) -> None:
    with opened(postgres_url) as (store,):
        add(store, "a")
        taken = lease(store)
        with pytest.raises(WrongSeedLease):
            store.give_back(2, taken.generation, owner="w1", now=NOW)
        assert books(store, DEFAULT_SEGMENT).leased == 1
