"""Snowflake ids: unique and rising whatever clocks and crashes do."""

from __future__ import annotations

import itertools
import os
import threading
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yardkit.clock import ManualClock
from yardkit.snowflake import EPOCH_MS, Snowflake, SnowflakeError, decode


class MemoryStore:
    def __init__(self) -> None:
        self.marks: dict[int, int] = {}
        self.saves = 0
        self.broken = False

    def load(self, worker: int) -> int:
        return self.marks.get(worker, 0)

    def save(self, worker: int, ms: int) -> None:
        if self.broken:
            raise OSError("disk full")
        assert ms > self.marks.get(worker, 0)
        self.marks[worker] = ms
        self.saves += 1


def test_an_id_tells_when_and_where() -> None:
    clock = ManualClock(datetime(2026, 3, 4, 5, 6, 7, 89000, tzinfo=UTC))
    ids = Snowflake(517, MemoryStore(), clock=clock)
    assert decode(ids.next()) == (clock.now(), 517, 0)
    assert decode(ids.next()) == (clock.now(), 517, 1)
    clock.advance(1)
    assert decode(ids.next()) == (clock.now(), 517, 0)
    assert ids.next() < 1 << 63


def test_a_rolling_sequence_goes_on_in_the_next_millisecond() -> None:
    clock = ManualClock()
    ids = Snowflake(1, MemoryStore(), clock=clock, rolling=True)
    found = list[int]()
    for _ in range(5000):
        found.append(ids.next())
        clock.advance(0.003)
    assert found == sorted(set(found))
    assert [decode(each)[2] for each in found] == [number % 4096 for number in range(5000)]


def test_a_full_millisecond_rolls_on() -> None:
    clock = ManualClock()
    ids = Snowflake(1, MemoryStore(), clock=clock)
    many = ids.next_many(10_000)
    assert many == sorted(set(many))
    last, _, sequence = decode(many[-1])
    assert round((last - clock.now()).total_seconds() * 1000) == 2
    assert sequence == 10_000 - 2 * 4096 - 1
    assert ids.next_many(0) == []


def test_the_mark_is_written_before_the_id_is_given_out() -> None:
    clock, store = ManualClock(), MemoryStore()
    ids = Snowflake(1, store, clock=clock)
    assert store.saves == 0
    ids.next()
    assert store.marks[1] == int(clock.time() * 1000) + 2000
    clock.advance(1.9)
    ids.next()
    assert store.saves == 1
    clock.advance(0.2)
    ids.next()
    assert store.saves == 2


def test_a_store_that_fails_gives_out_nothing() -> None:
    clock, store = ManualClock(), MemoryStore()
    ids = Snowflake(1, store, clock=clock)
    before = ids.next()
    clock.advance(60)
    store.broken = True
    for _ in range(2):
        with pytest.raises(OSError, match="disk full"):
            ids.next()
    clock.jump(-3600)
    store.broken = False
    assert ids.next() > before


def test_a_restart_with_the_clock_far_back() -> None:
    clock, store = ManualClock(), MemoryStore()
    before = Snowflake(1, store, clock=clock).next_many(5000)
    clock.jump(-86400 * 365 * 30)
    after = Snowflake(1, store, clock=clock).next()
    assert after > before[-1]


# Steps of a history: ids taken, the clock moved in ms, or the process killed and started again.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from([1, 1, 2, 50, 4095, 4096, 4097, 9000])),
        st.tuples(
            st.just("clock"),
            st.one_of(
                st.integers(0, 3),
                st.integers(-5000, 5000),
                st.sampled_from([-3_600_000, 86_400_000, -1000]),
            ),
        ),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.slow("1 s")
@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_unique_and_rising_whatever_happens(steps: list[tuple[str, int]]) -> None:
    clock, store = ManualClock(), MemoryStore()
    ids = Snowflake(3, store, clock=clock)
    last = -1
    for action, amount in steps:
        if action == "take":
            some = ids.next_many(amount)
            assert len(some) == amount
            assert all(one < other for one, other in itertools.pairwise(some))
            assert some[0] > last
            last = some[-1]
            # Everything given out lies below the mark that a restart will find.
            assert (last >> 22) + EPOCH_MS < store.marks[3]
        elif action == "clock":
            clock.jump(amount / 1000)
        else:
            ids = Snowflake(3, store, clock=clock)


def test_threads_share_one_generator() -> None:
    ids = Snowflake(1, MemoryStore())
    taken: list[list[int]] = [[] for _ in range(4)]

    def take(mine: list[int]) -> None:
        for _ in range(500):
            mine.extend(ids.next_many(3))

    threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [number for mine in taken for number in mine]
    assert len(set(everything)) == len(everything) == 6000
    assert all(mine == sorted(mine) for mine in taken)


def test_a_fork_must_make_its_own() -> None:
    ids = Snowflake(1, MemoryStore())
    ids.next()
    child = os.fork()
    if child == 0:
        try:
            ids.next()
        except SnowflakeError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    ids.next()


def test_limits() -> None:
    for worker in (-1, 1024):
        with pytest.raises(ValueError, match="outside 0 to 1023"):
            Snowflake(worker, MemoryStore())
    late = ManualClock(datetime(2094, 1, 1, tzinfo=UTC))
    with pytest.raises(SnowflakeError, match="2093"):
        Snowflake(0, MemoryStore(), clock=late).next()
    for number in (-1, 1 << 63):
        with pytest.raises(ValueError, match="no id"):
            decode(number)
