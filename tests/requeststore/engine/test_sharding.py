"""Where requests lie: from an id to its split, by the epoch of its time."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.requeststore.engine.biz import Balance, Biz, Epoch
from apps.requeststore.engine.placement import (
    Placement,
    ShardPlace,
    collection_of,
    database_of,
    queue_of,
    split_of,
    time_of,
)
from apps.requeststore.engine.shard import Shard
from yardkit.clock import ManualClock
from yardkit.snowflake import MAX_WORKER, Snowflake

# Other work may have the processors meanwhile.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
IDS = st.integers(min_value=0, max_value=2**63 - 1)
SPLITS = st.integers(min_value=1, max_value=256)


class _Marks:
    def load(self, worker: int) -> int:
        return 0

    def save(self, worker: int, ms: int) -> None:
        pass


def _snowflakes(number: int) -> list[int]:
    """As a busy producer makes them: several each millisecond."""
    clock = ManualClock()
    ids = Snowflake(3, _Marks(), clock=clock)
    found = list[int]()
    while len(found) < number:
        found.extend(ids.next_many(7))
        clock.advance(0.002)
    return found[:number]


def _spread(biz: Biz) -> Placement:
    return Placement(prefix="crawlyard", project_id=7, name="news", biz=biz)


def consistent(splits: int) -> Epoch:
    return Epoch(splits=splits, balance=Balance.CONSISTENT)


@pytest.mark.covers("S4.11")
@UNHURRIED
@given(IDS, SPLITS)
def test_modulo_is_exactly_the_remainder(number: int, splits: int) -> None:
    assert split_of(number, Epoch(splits=splits)) == number % splits


@pytest.mark.covers("S4.11", "S4.14")
@UNHURRIED
@given(IDS, SPLITS, SPLITS)
def test_with_more_splits_a_consistent_id_stays_or_goes_to_a_new_one(
    number: int, one: int, other: int
) -> None:
    few, many = sorted((one, other))
    before, after = split_of(number, consistent(few)), split_of(number, consistent(many))
    assert 0 <= before < few
    assert after == before or few <= after < many


@pytest.mark.covers("S4.14")
def test_from_4_to_16_splits_three_quarters_move_and_no_more() -> None:
    ids = _snowflakes(20_000)
    moved = sum(split_of(each, consistent(4)) != split_of(each, consistent(16)) for each in ids)
    # 12 of 16 by design; four standard deviations of 20,000 draws are 0.0122.
    assert moved / len(ids) == pytest.approx(0.75, abs=0.0123)


@pytest.mark.slow("3 s")
@pytest.mark.covers("S4.12")
@pytest.mark.parametrize("splits", [2, 3, 16, 256])
@pytest.mark.parametrize("balance", list(Balance))
def test_ids_of_a_producer_spread_evenly(splits: int, balance: Balance) -> None:
    epoch = Epoch(splits=splits, balance=balance)
    counts = Counter(split_of(each, epoch) for each in _rolling(40_960))
    mean = 40_960 / splits
    # Chi-squared per degree of freedom; for even draws it is 1, with a deviation of sqrt(2 / n).
    chi = sum((counts[split] - mean) ** 2 / mean for split in range(splits)) / (splits - 1)
    assert chi < 1 + 5 * (2 / (splits - 1)) ** 0.5


def _rolling(number: int) -> list[int]:
    """As the id service makes them for producers with one request now and then."""
    clock = ManualClock()
    ids = Snowflake(MAX_WORKER, _Marks(), clock=clock, rolling=True)
    found = list[int]()
    for _ in range(number):
        found.append(ids.next())
        clock.advance(0.01)
    return found


@pytest.mark.covers("S4.9", "S4.12")
def test_names_are_made_of_the_project_and_the_biz() -> None:
    biz = Biz(epochs=[Epoch(splits=3, nodes=["a", "b"])])
    assert database_of("crawlyard", 7, "news", biz) == "crawlyard_p7_news"
    assert collection_of(biz, 2) == "requests_002"
    assert queue_of(7, "news", biz) == "p7.news"
    own = Biz(database="shared", collection="pages", queue="fast")
    assert database_of("crawlyard", 7, "news", own) == "crawlyard_p7_shared"
    assert collection_of(own, 255) == "pages_255"
    assert queue_of(7, "news", own) == "p7.fast"
    assert _spread(biz).places == (
        ShardPlace("a", Shard("crawlyard_p7_news", "requests_000")),
        ShardPlace("b", Shard("crawlyard_p7_news", "requests_001")),
        ShardPlace("a", Shard("crawlyard_p7_news", "requests_002")),
    )


def test_the_longest_names_fit_every_adapter() -> None:
    biz = Biz(collection="c" * 32)
    assert len(database_of("p" * 16, 2**31, "n" * 32, biz)) <= 63
    assert len(collection_of(biz, 255)) <= 63


@pytest.mark.covers("S4.14")
def test_an_epoch_begins_at_its_since() -> None:
    first, second, third = Epoch(), Epoch(since=1000, splits=4), Epoch(since=2000, splits=16)
    biz = Biz(epochs=[first, second, third])
    spread = _spread(biz)
    found = [spread.place(11, ts).shard.collection for ts in (0, 999, 1000, 1999, 2000)]
    splits = (0, 0, 3, 3, 11)
    assert found == [f"requests_{split:03}" for split in splits]
    assert _spread(Biz(epochs=[second])).place(11, 0).shard.collection == "requests_003"


@pytest.mark.covers("S4.14", "S4.29")
@UNHURRIED
@given(
    st.lists(
        st.builds(
            Epoch,
            since=st.integers(0, 4_000_000_000_000),
            splits=SPLITS,
            nodes=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3),
            balance=st.sampled_from(Balance),
        ),
        min_size=1,
        max_size=5,
        unique_by=lambda epoch: epoch.since,
    ),
    IDS,
    st.integers(0, 4_000_000_000_000),
)
def test_a_request_is_found_wherever_its_epoch_put_it(
    epochs: list[Epoch], number: int, ts: int
) -> None:
    epochs.sort(key=lambda epoch: epoch.since)
    spread = _spread(Biz(epochs=epochs))
    place = spread.place(number, ts)
    assert spread.candidates(number, ts)[0] == place
    blind = spread.candidates(number)
    assert place in blind
    assert len(blind) == len(set(blind))
    assert set(blind) == set(spread.places)


@pytest.mark.covers("S4.14")
def test_a_snowflake_tells_its_epoch_when_nobody_knows_the_time() -> None:
    clock = ManualClock()
    start = int(clock.time() * 1000)
    ids = Snowflake(1, _Marks(), clock=clock)
    biz = Biz(epochs=[Epoch(splits=4), Epoch(since=start + 5000, splits=16)])
    spread = _spread(biz)
    old = ids.next_many(50)
    clock.advance(6)
    new = ids.next_many(50)
    assert time_of(old[0]) == start
    for number in old:
        assert spread.candidates(number)[0] == spread.place(number, start)
    for number in new:
        assert spread.candidates(number)[0] == spread.place(number, start + 6000)


def test_former_places_are_looked_into_last_and_once() -> None:
    spread = _spread(Biz())
    former = ShardPlace("old", Shard("crawlyard_p7_news", "requests_009"))
    assert spread.candidates(5, 1, [former, spread.places[0]]) == [*spread.places, former]


def test_groups_keep_the_order_of_their_requests() -> None:
    spread = _spread(Biz(epochs=[Epoch(splits=4), Epoch(since=100, splits=2)]))
    pairs = [(random.Random(n).getrandbits(62), 50 if n % 3 else 150) for n in range(200)]
    groups = spread.group(pairs)
    assert sorted(n for positions in groups.values() for n in positions) == list(range(200))
    for place, positions in groups.items():
        assert positions == sorted(positions)
        assert all(spread.place(*pairs[n]) == place for n in positions)
