"""Weights are shares of polls."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.routing.engine.inbounds import poll_scheduler as module
from apps.routing.engine.inbounds.poll_scheduler import HOLD_SECONDS, LONGEST_REST_SECONDS, Key

WEIGHTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 100), min_size=1)


class PollScheduler(module.PollScheduler):
    """Scheduler with the inbounds of one project, by name."""

    def __init__(self, weights: dict[str, int], **options: float) -> None:
        super().__init__({(0, name): weight for name, weight in weights.items()}, **options)

    def name(self, now: float) -> str | None:
        key = self.turn(now)
        return None if key is None else key[1]

    def gave(self, name: str, count: int, now: float) -> None:
        self.found((0, name), count, now)


def turns(polling: PollScheduler, count: int, now: float = 0.0) -> str:
    found = []
    for _ in range(count):
        name = polling.name(now)
        assert name is not None
        polling.gave(name, 1, now)
        found.append(name)
    return "".join(found)


@pytest.mark.covers("S2.17")
def test_heavy_ones_are_spread_between_light_ones() -> None:
    assert turns(PollScheduler({"a": 5, "b": 1, "c": 1}), 14) == "aabacaa" * 2


@settings(deadline=None)
@given(WEIGHTS, st.integers(1, 300))
def test_each_has_its_share_of_any_number_of_polls(weights: dict[str, int], count: int) -> None:
    order = turns(PollScheduler(weights), count)
    total = sum(weights.values())
    for name, weight in weights.items():
        assert abs(order.count(name) - count * weight / total) <= len(weights)


@settings(deadline=None)
@given(WEIGHTS, st.sets(st.sampled_from("abcdef")), st.integers(50, 300))
def test_empty_ones_leave_their_share_to_the_others(
    weights: dict[str, int], empty: set[str], count: int
) -> None:
    full = {name: weight for name, weight in weights.items() if name not in empty}
    polling = PollScheduler(weights)
    counts = dict.fromkeys(weights, 0)
    now = 0.0
    while sum(counts[name] for name in full) < count and full:
        name = polling.name(now)
        assert name is not None
        counts[name] += 1
        polling.gave(name, name not in empty, now)
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
    assert turns(PollScheduler(weights), 100) == turns(PollScheduler(weights), 100)


def test_all_rest_until_the_first_wakes() -> None:
    polling = PollScheduler({"a": 1, "b": 1}, first_rest=1.0, longest_rest=3.0)
    for now in (0.0, 0.25):
        name = polling.name(now)
        assert name is not None
        polling.gave(name, 0, now)
    assert polling.name(0.5) is None
    assert polling.wait(0.5) == 0.5
    assert polling.name(1.0) == "a"
    polling.gave("a", 0, 1.0)
    assert polling.wait(1.25) == 0.0
    assert polling.name(1.25) == "b"
    polling.gave("b", 5, 1.25)
    assert polling.name(1.25) == "b"
    polling.gave("a", 0, 3.0)
    polling.gave("a", 0, 3.0)
    polling.gave("b", 0, 3.0)
    assert polling.wait(3.0) == 1.0


def test_none_at_all_is_no_busy_loop() -> None:
    polling = PollScheduler({})
    assert polling.name(0.0) is None
    assert polling.wait(0.0) == LONGEST_REST_SECONDS


def test_a_weight_of_nothing_still_has_a_turn() -> None:
    assert "b" in turns(PollScheduler({"a": 10, "b": 0}), 30)


@pytest.mark.covers("S2.17")
@pytest.mark.parametrize("seconds", [0.01, 0.3])
def test_an_inbound_with_all_threads_at_work_keeps_its_share(seconds: float) -> None:
    polling = module.PollScheduler({(0, "heavy"): 50, (0, "light"): 10})
    busy: dict[Key, float] = {}
    counts = {"heavy": 0, "light": 0}
    # Two workers, one thread for each inbound, and batches that all take as long.
    for step in range(1000):
        now = step * seconds / 2
        for key in [key for key, since in busy.items() if now >= since + seconds]:
            del busy[key]
        if (turn := polling.turn(now, busy.get)) is not None:
            busy[turn] = now
            counts[turn[1]] += 1
    assert counts["heavy"] == pytest.approx(5 * counts["light"], abs=5)


def test_a_slow_batch_holds_others_back_for_a_moment_and_no_other_project() -> None:
    polling = module.PollScheduler({(0, "slow"): 50, (0, "quick"): 10, (1, "other"): 1})
    assert polling.turn(0.0) == (0, "slow")
    busy = {(0, "slow"): 0.0}.get
    assert {polling.turn(0.5, busy) for _ in range(10)} == {(1, "other")}
    late = {polling.turn(HOLD_SECONDS, busy) for _ in range(20)}
    assert late == {(0, "quick"), (1, "other")}
