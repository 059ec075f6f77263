"""How resources are judged and chosen, and that none of them is forgotten."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.engine.scores import (
    FACTOR,
    FORGIVING_SECONDS,
    LEASE_SECONDS,
    MAX_COOL_DOWN_SECONDS,
    NEVER_USED,
    ROTATION_PERCENT,
    Candidate,
    ResourceScore,
    ScoringRules,
    choose,
    cool_down,
    judge,
    next_score,
    rank,
    zone_size,
)

SCORES = st.floats(0.0, 1.0)
# 2001 to 2065.
MOMENTS = st.floats(1e9, 3e9)
CANDIDATES = st.lists(
    st.builds(Candidate, st.integers(), SCORES, st.none() | MOMENTS),
    max_size=30,
    unique_by=lambda each: each.name,
)


@pytest.mark.covers("S3.21")
def test_the_figures_of_the_seed() -> None:
    assert (FACTOR, ROTATION_PERCENT, LEASE_SECONDS) == (10, 70, 4 * 3600)


@pytest.mark.covers("S3.21")
@given(SCORES, st.booleans())
def test_a_use_moves_the_score_a_tenth_of_the_way(score: float, succeeded: bool) -> None:
    moved = next_score(score, succeeded=succeeded)
    assert 0.0 <= moved <= 1.0
    assert math.isclose(moved, score * 0.9 + (0.1 if succeeded else 0.0), abs_tol=1e-12)


@pytest.mark.slow("1 s")
@given(st.lists(st.booleans(), min_size=1, max_size=200), SCORES)
def test_the_score_is_the_average_that_forgets(uses: list[bool], score: float) -> None:
    expected = score
    for succeeded in uses:
        expected = 0.9 * expected + 0.1 * succeeded
        score = next_score(score, succeeded=succeeded)
    assert math.isclose(score, expected, abs_tol=1e-9)


@given(st.integers(0, 10_000), st.just(0.0) | st.floats(0.001, 7 * 86_400))
def test_a_cool_down_doubles_up_to_a_day(failures: int, first: float) -> None:
    pause = cool_down(failures, first)
    if failures == 0 or first == 0:
        assert pause == 0
    elif failures == 1:
        assert pause == first
    else:
        before = cool_down(failures - 1, first)
        assert pause == min(2 * before, max(first, MAX_COOL_DOWN_SECONDS))


def test_a_cool_down_of_a_minute_reaches_a_day_after_twelve_failures() -> None:
    pauses = [cool_down(failures, 60) for failures in range(1, 14)]
    assert pauses[:4] == [60, 120, 240, 480]
    assert pauses[10:] == [61_440, 86_400, 86_400]


@given(st.integers(0, 1_000_000), st.integers(1, 100))
def test_the_zone_is_that_share_rounded_up(free: int, percent: int) -> None:
    size = zone_size(free, percent)
    assert size == math.ceil(free * percent / 100)
    assert (size > 0) == (free > 0)


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_a_zone_that_is_none_is_refused(percent: int) -> None:
    with pytest.raises(InvalidFrontierSetting):
        zone_size(10, percent)


@pytest.mark.parametrize(
    "wrong", [{"rest_seconds": -1}, {"cool_down_seconds": -1}, {"ban_after": -1}], ids=str
)
def test_rules_that_are_none_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidFrontierSetting):
        ScoringRules(**wrong)


@pytest.mark.covers("S3.21")
@given(CANDIDATES, st.integers(1, 100))
def test_the_one_unused_longest_of_the_best_is_chosen(free: list[Candidate], percent: int) -> None:
    chosen = choose(free, percent)
    if not free:
        assert chosen is None
        return
    assert chosen is not None
    best = sorted(free, key=lambda each: (rank(each.score, each.used_at), each.name))
    zone = best[: zone_size(len(free), percent)]
    assert chosen in zone
    assert all((chosen.used_at or NEVER_USED) <= (each.used_at or NEVER_USED) for each in zone)
    # Its place in the list decides nothing.
    assert choose(free[::-1], percent) == chosen


@given(SCORES, SCORES, MOMENTS)
def test_by_the_same_rest_the_better_score_comes_first(one: float, two: float, at: float) -> None:
    better, worse = max(one, two), min(one, two)
    assert rank(better, at) <= rank(worse, at)


@given(SCORES, SCORES, MOMENTS)
def test_a_day_of_rest_outweighs_any_score(one: float, two: float, at: float) -> None:
    assert rank(one, at) <= rank(two, at + FORGIVING_SECONDS + 1)
    assert rank(one, None) < rank(two, at)


def test_success_ends_a_row_of_failures_and_asks_only_for_rest() -> None:
    rules = ScoringRules(rest_seconds=5, cool_down_seconds=60, ban_after=3)
    bad = judge(ResourceScore(1.0, 1), rules, succeeded=False)
    assert (bad.standing.failures, bad.pause_seconds, bad.banned) == (2, 120, False)
    good = judge(bad.standing, rules, succeeded=True)
    assert (good.standing.failures, good.pause_seconds, good.banned) == (0, 5, False)
    assert judge(bad.standing, rules, succeeded=False).banned


def test_a_rest_longer_than_the_cool_down_holds() -> None:
    rules = ScoringRules(rest_seconds=600, cool_down_seconds=60)
    assert judge(ResourceScore(), rules, succeeded=False).pause_seconds == 600


def test_nobody_is_banned_where_the_pool_says_never() -> None:
    assert not judge(ResourceScore(0.0, 9999), ScoringRules(ban_after=0), succeeded=False).banned


# --- a pool over time ---------------------------------------------------------------------------


@dataclass
class Pool:
    """Twenty resources in memory, one use after another."""

    gap: float
    rules: ScoringRules
    chances: dict[int, float]
    now: float = 1.8e9
    standings: dict[int, ResourceScore] = field(default_factory=dict)
    used: dict[int, float] = field(default_factory=dict)
    free_at: dict[int, float] = field(default_factory=dict)
    uses: Counter[int] = field(default_factory=Counter)

    def use(self, dice: random.Random) -> int | None:
        free = [
            Candidate(name, self.standings.get(name, ResourceScore()).score, self.used.get(name))
            for name in self.chances
            if self.free_at.get(name, 0.0) <= self.now
        ]
        chosen = choose(free)
        self.now += self.gap
        if chosen is None:
            return None
        standing = self.standings.get(chosen.name, ResourceScore())
        verdict = judge(standing, self.rules, succeeded=dice.random() < self.chances[chosen.name])
        self.standings[chosen.name] = verdict.standing
        self.used[chosen.name] = self.now
        self.free_at[chosen.name] = self.now + verdict.pause_seconds
        self.uses[chosen.name] += 1
        return chosen.name


def test_equal_resources_take_equal_turns() -> None:
    pool = Pool(gap=1.0, rules=ScoringRules(), chances=dict.fromkeys(range(20), 1.0))
    dice = random.Random(1)
    for _ in range(2000):
        pool.use(dice)
    assert set(pool.uses.values()) == {100}


@pytest.mark.slow("1 s")
def test_bad_ones_are_used_far_less_and_never_forgotten() -> None:
    """Three days, a use every ten seconds: two that always fail are tried now and then."""
    chances = dict.fromkeys(range(18), 0.95) | {18: 0.0, 19: 0.0}
    pool = Pool(gap=10.0, rules=ScoringRules(), chances=chances)
    dice = random.Random(2)
    begin = pool.now
    last: dict[int, float] = {}
    waits: list[float] = []
    while pool.now < begin + 3 * 86_400:
        name = pool.use(dice)
        if name in (18, 19):
            waits.append(pool.now - last.get(name, begin))
            last[name] = pool.now
    total = pool.uses.total()
    assert pool.uses[18] + pool.uses[19] < total * 0.005
    assert min(pool.uses[18], pool.uses[19]) >= 3
    # A day of rest, a cool-down of at most a day before it, and a round of the others.
    assert max(waits) <= FORGIVING_SECONDS + 3600
    good = [pool.uses[name] for name in range(18)]
    assert max(good) < 2 * min(good)


@pytest.mark.slow("1 s")
def test_bad_luck_is_made_up_for() -> None:
    """One failed twelve times in a row and works again: within days it is used like the others."""
    pool = Pool(gap=60.0, rules=ScoringRules(), chances=dict.fromkeys(range(20), 1.0))
    pool.standings[7] = ResourceScore(0.3, 12)
    pool.used[7] = pool.now
    pool.free_at[7] = pool.now + cool_down(12, 60)
    dice = random.Random(3)
    by_day: list[Counter[int]] = []
    for day in range(1, 11):
        before = pool.uses.copy()
        while pool.now < 1.8e9 + day * 86_400:
            pool.use(dice)
        by_day.append(pool.uses - before)
    assert by_day[0][7] == 0
    assert sum(each[7] for each in by_day[:3]) > 0
    assert by_day[-1][7] > 0.8 * by_day[-1][0]
