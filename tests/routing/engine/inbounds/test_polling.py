"""Weights are shares of the polls."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.routing.engine.inbounds.polling import LONGEST_REST_SECONDS, Polling

WEIGHTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 100), min_size=1)


def turns(polling: Polling, count: int, now: float = 0.0) -> str:
    found = []
    for _ in range(count):
        name = polling.turn(now)
        assert name is not None
        polling.found(name, 1, now)
        found.append(name)
    return "".join(found)


@pytest.mark.covers("S2.17")
def test_heavy_ones_are_spread_between_light_ones() -> None:
    assert turns(Polling({"a": 5, "b": 1, "c": 1}), 14) == "aabacaa" * 2


@settings(deadline=None)
@given(WEIGHTS, st.integers(1, 300))
def test_each_has_its_share_of_any_number_of_polls(weights: dict[str, int], count: int) -> None:
    order = turns(Polling(weights), count)
    total = sum(weights.values())
    for name, weight in weights.items():
        assert abs(order.count(name) - count * weight / total) <= len(weights)


@settings(deadline=None)
@given(WEIGHTS, st.sets(st.sampled_from("abcdef")), st.integers(50, 300))
def test_empty_ones_leave_their_share_to_the_others(
    weights: dict[str, int], empty: set[str], count: int
) -> None:
    full = {name: weight for name, weight in weights.items() if name not in empty}
    polling = Polling(weights)
    counts = dict.fromkeys(weights, 0)
    now = 0.0
    while sum(counts[name] for name in full) < count and full:
        name = polling.turn(now)
        assert name is not None
        counts[name] += 1
        polling.found(name, name not in empty, now)
        now += 0.001
    for name, weight in full.items():
        share = count * weight / sum(full.values())
        # Each rest begins and ends with one poll that moves the credits a little.
        polls_of_empty = sum(counts[each] for each in weights if each in empty)
        assert abs(counts[name] - share) <= len(weights) + polls_of_empty
    for name in weights.keys() & empty:
        # It rests longer each time: 10 ms, 20 ms ... 0.5 s.
        assert counts[name] <= 6 + now / LONGEST_REST_SECONDS


@settings(deadline=None)
@given(WEIGHTS)
def test_the_same_is_polled_in_the_same_order_each_time(weights: dict[str, int]) -> None:
    assert turns(Polling(weights), 100) == turns(Polling(weights), 100)


def test_all_rest_until_the_first_wakes() -> None:
    polling = Polling({"a": 1, "b": 1}, first_rest=1.0, longest_rest=3.0)
    for now in (0.0, 0.25):
        name = polling.turn(now)
        assert name is not None
        polling.found(name, 0, now)
    assert polling.turn(0.5) is None
    assert polling.wait(0.5) == 0.5
    assert polling.turn(1.0) == "a"
    polling.found("a", 0, 1.0)
    assert polling.wait(1.25) == 0.0
    assert polling.turn(1.25) == "b"
    polling.found("b", 5, 1.25)
    assert polling.turn(1.25) == "b"
    polling.found("a", 0, 3.0)
    polling.found("a", 0, 3.0)
    polling.found("b", 0, 3.0)
    assert polling.wait(3.0) == 1.0


def test_none_at_all_is_no_busy_loop() -> None:
    polling = Polling({})
    assert polling.turn(0.0) is None
    assert polling.wait(0.0) == LONGEST_REST_SECONDS


def test_a_weight_of_nothing_still_has_a_turn() -> None:
    assert "b" in turns(Polling({"a": 10, "b": 0}), 30)
