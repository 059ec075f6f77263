"""Offsets of imports: the seed's examples; no sequence of totals leaves a record out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.sources.engine.progress import (
    Checkpoint,
    EndReason,
    Gap,
    Marker,
    add_gap,
    advanced,
    plan,
    untouched_by_seed_rule,
    windows,
)


def offsets(marker: Marker, total: int, size: int = 100) -> list[tuple[int, int]]:
    found = plan(marker, total, size, reset_when_shrunk=True).checkpoint
    return list(windows(found)) if found is not None else []


def after(total: int) -> Marker:
    return Marker(start=max(total - 100, 0), total=total)


@pytest.mark.covers("S0.1", "S0.4", "S0.5", "S0.9", "S0.10", "S0.12")
def test_the_seeds_numbers() -> None:
    first = offsets(Marker(), 270_000)
    assert first[:2] == [(269_900, 100), (269_800, 100)]
    assert first[-1] == (0, 100)
    assert len(first) == 2700
    assert offsets(after(270_000), 270_500) == [
        (offset, 100) for offset in (270_400, 270_300, 270_200, 270_100, 270_000, 269_900)
    ]


@pytest.mark.covers("S0.14", "S0.15")
@pytest.mark.parametrize(
    ("total", "last", "batches"),
    [
        (0, None, 0),
        (1, (0, 1), 1),
        (99, (0, 99), 1),
        (100, (0, 100), 1),
        (101, (0, 1), 2),
        (270_050, (0, 50), 2701),
    ],
)
def test_a_first_run_reads_down_to_the_first_record(
    total: int, last: tuple[int, int] | None, batches: int
) -> None:
    found = offsets(Marker(), total)
    assert len(found) == batches
    assert (found[-1] if found else None) == last
    assert sum(size for _offset, size in found) == total


@pytest.mark.covers("S0.13")
@given(st.lists(st.integers(0, 450), min_size=1, max_size=6), st.integers(1, 120))
def test_whatever_a_source_grows_by_every_record_is_read(growth: list[int], size: int) -> None:
    total = 0
    marker = Marker()
    read: set[int] = set()
    for more in growth:
        total += more
        found = plan(marker, total, size, reset_when_shrunk=True)
        if found.checkpoint is None:
            assert (total, found.why) == (0, EndReason.NOTHING)
            continue
        batch_numbers = [
            number
            for offset, count in windows(found.checkpoint)
            for number in range(offset, offset + count)
        ]
        # No record twice in one import, and at most one batch of known ones.
        assert len(set(batch_numbers)) == len(batch_numbers)
        assert len(read & set(batch_numbers)) <= size
        read |= set(batch_numbers)
        assert read == set(range(total))
        marker = Marker(start=found.checkpoint.start, total=total)


@given(st.integers(1, 3000), st.integers(1, 100), st.integers(0, 40))
def test_a_harvest_goes_on_where_its_checkpoint_is(total: int, size: int, done: int) -> None:
    at = plan(Marker(), total, size, reset_when_shrunk=True).checkpoint
    assert at is not None
    whole = list(windows(at))
    for _ in range(min(done, len(whole))):
        at = advanced(at)
    assert list(windows(at)) == whole[done:]


@pytest.mark.covers("S0.16")
def test_fewer_records_than_before_mean_a_new_beginning() -> None:
    marker = after(500)
    anew = plan(marker, 300, 100, reset_when_shrunk=True)
    assert anew.shrunk
    assert anew.checkpoint == Checkpoint(
        start=200, next=200, until=300, end=0, covered=0, total=300, size=100, first=True
    )
    told = plan(marker, 300, 100, reset_when_shrunk=False)
    assert (told.checkpoint, told.why, told.shrunk) == (None, EndReason.SHRUNK, True)
    assert not plan(marker, 500, 100, reset_when_shrunk=False).shrunk


@pytest.mark.covers("S0.14")
def test_a_history_by_the_seeds_rule_has_a_gap_at_its_beginning() -> None:
    assert untouched_by_seed_rule(269_950, 100) == [Gap(0, 49, "seed_rule")]
    assert untouched_by_seed_rule(269_900, 100) == []
    # Its last total is unknown; by the rule it was one batch more.
    assert offsets(Marker(start=269_950), 270_120) == [(270_020, 100)]
    assert offsets(Marker(start=269_900), 270_120) == [(270_020, 100), (269_920, 100)]


def test_gaps_are_joined_and_limited() -> None:
    gaps = add_gap([], Gap(100, 199, "missing"))
    gaps = add_gap(gaps, Gap(50, 99, "missing"))
    assert gaps == [{"from": 50, "to": 199, "why": "missing"}]
    gaps = add_gap(gaps, Gap(0, 49, "expired"))
    assert len(gaps) == 2
    for number in range(300):
        gaps = add_gap(gaps, Gap(1000 + 2 * number, 1000 + 2 * number, "missing"))
    assert len(gaps) == 100
