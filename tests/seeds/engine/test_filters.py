"""Filters: how full, how wrong, and what is done with a file that cannot be trusted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.engine.filters import FilterSettings, FilterUnreadable, SegmentFilter
from apps.seeds.engine.keys import key_hash


def hashes(numbers: Iterable[int]) -> list[bytes]:
    """Of as many keys."""
    return [key_hash(str(number)) for number in numbers]


@pytest.mark.slow("2 s")
@pytest.mark.covers("S3.7")
@pytest.mark.parametrize("rate", [0.03, 0.001, 1e-5])
def test_a_full_filter_is_as_wrong_as_it_says(rate: float) -> None:
    made = SegmentFilter(FilterSettings(20_000, rate))
    made.add(hashes(range(20_000)))
    assert made.maybe_seen(hashes(range(20_000))) == hashes(range(20_000))
    wrong = len(made.maybe_seen(hashes(range(20_000, 120_000)))) / 100_000
    state = made.state()
    assert 0.4 < state.fill < 0.55
    assert abs(state.rate - rate) < 0.2 * rate
    assert wrong < 2 * rate + 1e-4


def test_the_default_rate_takes_less_than_3_bytes_a_seed() -> None:
    state = SegmentFilter(FilterSettings(1_000_000)).state()
    assert state.size_bytes / 1_000_000 < 3
    assert state.fill == 0


def test_a_filter_far_beyond_its_size_knows_that() -> None:
    made = SegmentFilter(FilterSettings(100, 0.01))
    made.add(hashes(range(100_000)))
    assert made.state().fill == 1
    assert made.state().rate == 1


@pytest.mark.parametrize(
    "settings",
    [FilterSettings(0), FilterSettings(-1), FilterSettings(2_000_000_000)]
    + [FilterSettings(1, rate) for rate in (0, 1, -1, float("nan"))],
    ids=["none", "less", "many", "never", "always", "below", "nan"],
)
def test_a_filter_that_cannot_be_is_refused(settings: FilterSettings) -> None:
    with pytest.raises(InvalidFrontierSetting):
        settings.checked()


@pytest.mark.covers("S3.8")
def test_a_saved_filter_is_the_same_when_loaded(tmp_path: Path) -> None:
    made = SegmentFilter(FilterSettings(1000, 0.01))
    made.add(hashes(range(500)))
    path = tmp_path / "new" / "1-0.bloom"
    made.save(path, 77)
    loaded = SegmentFilter.load(path, 77)
    assert loaded.state() == made.state()
    assert loaded.settings == made.settings
    every = hashes(range(5000))
    assert loaded.maybe_seen(every) == made.maybe_seen(every)
    assert [one.name for one in path.parent.iterdir()] == ["1-0.bloom"]


@pytest.mark.covers("S3.8")
def test_a_file_that_cannot_be_trusted_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "1-0.bloom"
    with pytest.raises(FilterUnreadable, match="No such file"):
        SegmentFilter.load(path, 1)
    SegmentFilter(FilterSettings(1000, 0.01)).save(path, 77)
    good = path.read_bytes()
    with pytest.raises(FilterUnreadable, match="lacks the newest keys"):
        SegmentFilter.load(path, 78)
    for size in (0, 5, 20, 60, len(good) - 1):
        path.write_bytes(good[:size])
        with pytest.raises(FilterUnreadable, match="damaged"):
            SegmentFilter.load(path, 77)
    for position in range(0, len(good), 97):
        bad = bytearray(good)
        bad[position] ^= 1
        path.write_bytes(bad)
        with pytest.raises(FilterUnreadable):
            SegmentFilter.load(path, 77)
