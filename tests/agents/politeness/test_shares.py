"""The stores of shares: one contract for all, and what centers do without one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis

from apps.agents.center.politeness.limits import Defaults
from apps.agents.center.politeness.redis_shares import RedisShares
from apps.agents.center.politeness.shares import (
    HostShares,
    MemoryShares,
    ShareGrant,
    ShareRequest,
    SharesUnavailable,
    ShareTable,
    settle,
)
from apps.agents.center.share_keeper import ShareKeeper
from apps.agents.hosts.models import HostLedger
from apps.agents.hosts.shares import DatabaseShares, forget_ledgers
from tests.agents.politeness.engine_harness import HOST, EngineHarness
from tests.agents.politeness.shares_contract import CONTRACT, IN_TURN
from tests.outages import tables_away
from tests.plugins.measurements import Measured
from tests.postgres_rerun import run_again
from yardkit.clock import ManualClock

contract = pytest.mark.parametrize("holds", CONTRACT, ids=lambda rule: rule.__name__)
Rule = Callable[[HostShares], None]


@pytest.fixture
def in_redis(redis_url: str) -> Iterator[RedisShares]:
    shares = RedisShares(redis_url, "test")
    yield shares
    shares.close()


@contract
def test_memory_keeps_the_contract(holds: Rule) -> None:
    holds(MemoryShares(time.time))


@pytest.mark.slow("2 s")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "holds",
    CONTRACT if "CRAWLYARD_TEST_DATABASE_URL" in os.environ else IN_TURN,
    ids=lambda rule: rule.__name__,
)
def test_the_database_keeps_the_contract(holds: Rule) -> None:
    holds(DatabaseShares())


@contract
@pytest.mark.services
def test_redis_keeps_the_contract(holds: Rule, in_redis: RedisShares) -> None:
    holds(in_redis)


def again(database: str) -> None:
    """What is about the database once more, on one that several connections share."""
    said = run_again([Path(__file__)], database, "-k", "database")
    assert f"{len(CONTRACT) + 2} passed" in said


@pytest.mark.slow("15 s")
@pytest.mark.services
def test_so_it_does_on_postgresql(postgres_database: str) -> None:
    again(postgres_database)


@pytest.mark.slow("25 s")
def test_so_it_does_in_a_file(tmp_path: Path) -> None:
    again(f"sqlite:///{tmp_path / 'shared.sqlite3'}")


def two_centers(shares: HostShares, seconds: float) -> list[float]:
    """Two engines on one store, and the moments of what went out of both."""
    clock = ManualClock()
    defaults = Defaults(requests_per_second=40, concurrency=6)
    worlds = [EngineHarness(defaults, clock=clock, shares=shares, center=f"c{n}") for n in range(2)]
    for harness in worlds:
        harness.offer(400)
    began, gone = time.monotonic(), []
    while time.monotonic() - began < seconds:
        for harness in worlds:
            for _one in harness.step().go:
                gone.append(time.monotonic() - began)
        flying = sum(v.in_flight for harness in worlds for v in harness.engine.views(harness.now))
        assert flying <= 6
        for harness in worlds:
            harness.finish(1)
        # The engines live by the time that really passes, as the store does.
        clock.advance(max(0.0, time.monotonic() - began - (clock.monotonic() - 1000.0)))
    assert all(harness.gone for harness in worlds)
    return gone


@pytest.mark.slow("4 s")
@pytest.mark.covers("S1.48")
@pytest.mark.django_db(transaction=True)
def test_two_centers_share_a_host_through_the_database() -> None:
    gone = two_centers(DatabaseShares(), 3.0)
    assert 60 <= len(gone) <= 3 * 40 + 10


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.48")
@pytest.mark.services
def test_two_centers_share_a_host_through_redis(in_redis: RedisShares) -> None:
    gone = two_centers(in_redis, 3.0)
    assert 80 <= len(gone) <= 3 * 40 + 10


def test_a_center_that_is_gone_has_no_slots_after_its_lease() -> None:
    clock = ManualClock()
    shares = MemoryShares(clock.time)
    ask = ShareRequest(host=HOST, concurrency=4, wanted=4)
    shares.exchange("c1", [ask])
    clock.advance(4.9)
    assert shares.exchange("c2", [ask])[HOST].concurrency == 0
    clock.advance(0.2)
    assert shares.exchange("c2", [ask])[HOST].concurrency == 4


@pytest.mark.fault
def test_a_clock_that_was_set_back_stops_no_host() -> None:
    ledger = ShareTable()
    ask = ShareRequest(host=HOST, rate=1, requests=1, pause_seconds=10, strikes=1)
    settle(ledger, ask, "c1", 1_000_000.0)
    answer = settle(ledger, ShareRequest(host=HOST, rate=1, requests=1), "c1", 900_000.0)
    assert answer.start_seconds == 0.0
    assert answer.pause_seconds <= 3600


def test_rubbish_in_the_store_is_an_empty_ledger(transactional_db: None) -> None:
    HostLedger.objects.create(host=HOST, body=b"\xff{", updated_at=datetime.now(UTC))
    assert (
        DatabaseShares().exchange("c1", [ShareRequest(host=HOST, wanted=1)])[HOST].concurrency == 1
    )


@pytest.mark.services
@pytest.mark.fault
def test_rubbish_in_redis_is_an_empty_ledger(
    in_redis: RedisShares, redis_url: str, measured: Measured
) -> None:
    with contextlib.closing(redis.Redis.from_url(redis_url)) as client:
        client.set(f"test:host:{HOST}", b"\xff{")
    answers = in_redis.exchange("c1", [ShareRequest(host=HOST, wanted=1)])
    measured(of=1, lost=len({HOST} - answers.keys()))
    assert answers[HOST].concurrency == 1


@pytest.mark.services
def test_a_lock_that_somebody_died_with_is_waited_for(
    in_redis: RedisShares, redis_url: str
) -> None:
    with contextlib.closing(redis.Redis.from_url(redis_url)) as client:
        client.set("test:hosts:lock", "somebody", px=300)
    assert in_redis.exchange("c1", [ShareRequest(host=HOST, wanted=1)])[HOST].concurrency >= 1


def test_a_store_that_is_away_says_so() -> None:
    shares = RedisShares("redis://127.0.0.1:9/0", "test")
    with pytest.raises(SharesUnavailable, match="Redis"):
        shares.exchange("c1", [ShareRequest(host=HOST)])
    shares.close()


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_away_says_so() -> None:
    with tables_away("agents_hostledger"), pytest.raises(SharesUnavailable, match="database"):
        DatabaseShares().exchange("c1", [ShareRequest(host=HOST)])


@pytest.mark.django_db
def test_old_ledgers_are_forgotten() -> None:
    HostLedger.objects.create(host="old.test", updated_at=datetime(2020, 1, 1, tzinfo=UTC))
    HostLedger.objects.create(host="new.test", updated_at=datetime.now(UTC))
    assert forget_ledgers(datetime.now(UTC)) == 1
    assert HostLedger.objects.get().host == "new.test"


class Unsteady:
    """A store that can be away."""

    def __init__(self, clock: ManualClock) -> None:
        self.away = False
        self.left: list[str] = []
        self.inner = MemoryShares(clock.time)

    def exchange(self, center: str, asks: list[ShareRequest]) -> dict[str, ShareGrant]:
        if self.away:
            raise SharesUnavailable("gone fishing")
        return self.inner.exchange(center, asks)

    def leave(self, center: str, hosts: list[str]) -> None:
        self.left += hosts
        if self.away:
            raise SharesUnavailable("gone fishing")


class Kept:
    """A keeper in the test's own thread, and what it was granted."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = Unsteady(self.clock)
        self.granted: list[ShareGrant] = []
        self.keeper = ShareKeeper(
            shares=self.store,  # type: ignore[arg-type]
            center="c1",
            granted=lambda answers: self.granted.extend(answers.values()),
            now=self.clock.monotonic,
        )

    def ask(self, **values: float) -> ShareGrant:
        ask = ShareRequest(host=HOST, rate=10, concurrency=8, requests=20, wanted=8, **values)  # type: ignore[arg-type]
        self.keeper.ask([ask])
        assert self.keeper.step(1.0) == 1
        return self.granted[-1]


@pytest.mark.fault
def test_with_the_store_away_a_center_keeps_to_its_part_of_the_limit() -> None:
    kept = Kept()
    kept.store.inner.exchange("c2", [ShareRequest(host=HOST, concurrency=8, wanted=1)])
    assert kept.ask().centers == 2
    kept.store.away = True
    alone = kept.ask()
    assert (alone.requests, alone.spacing_seconds, alone.concurrency) == (5, 0.2, 4)
    kept.keeper.leave()
    assert kept.store.left == []
    kept.store.away = False
    assert kept.ask().spacing_seconds == 0.1
    kept.keeper.ask([ShareRequest(host="b.test", wanted=1)])
    kept.keeper.step(1.0)
    kept.keeper.leave()
    assert kept.store.left == ["b.test", HOST]


def test_asks_that_pile_up_lose_no_pause() -> None:
    kept = Kept()
    kept.keeper.ask([ShareRequest(host=HOST, pause_seconds=30, strikes=2)])
    answer = kept.ask()
    assert (answer.pause_seconds, answer.strikes) == (30, 2)
    assert kept.keeper.step(0.0) == 0
