"""Which files of a table are merged, and how often an item is rewritten by it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.datasets.engine.tiers import Extent, to_merge

SMALL = 1_000_000


def extents(*sizes: int) -> list[Extent]:
    """Files of these sizes, each with one batch."""
    return [Extent(number, size, number, number) for number, size in enumerate(sizes, 1)]


def chosen(files: list[Extent], *, ended: bool = False) -> list[int]:
    return [file.number for file in to_merge(files, small_bytes=SMALL, ended=ended)]


@pytest.mark.covers("DS.4")
@pytest.mark.parametrize(
    ("sizes", "ended", "expected"),
    [
        ([], False, []),
        ([10] * 15, False, []),
        ([10] * 16, False, list(range(1, 17))),
        # A large file is left alone, and is not jumped over.
        ([10] * 10 + [SMALL] + [10] * 10, False, []),
        ([10] * 16 + [SMALL] + [10] * 3, False, list(range(1, 17))),
        # The result of an earlier merge waits until others are as large.
        ([160] + [10] * 16, False, list(range(2, 18))),
        ([160, 160, 160, 160] + [10] * 12, False, list(range(1, 17))),
        ([10, 10], True, [1, 2]),
        ([SMALL, 10], True, []),
        # Two items that came late are no reason to write a whole file again.
        ([SMALL - 1, 10], True, []),
        ([SMALL - 1, 10, 10], True, [2, 3]),
        ([SMALL - 1, SMALL // 2], True, [1, 2]),
    ],
)
def test_neighbours_of_similar_size_are_merged(
    sizes: list[int], ended: bool, expected: list[int]
) -> None:
    assert chosen(extents(*sizes), ended=ended) == expected


@pytest.mark.covers("DS.4")
def test_files_that_share_a_batch_are_merged_together_or_not_at_all() -> None:
    # The batch 1 is in both: replacing batches 1 to 3 would replace a part of the first.
    files = [Extent(1, SMALL, 0, 1), Extent(2, 10, 1, 1), Extent(3, 10, 2, 2), Extent(4, 10, 3, 3)]
    assert chosen(files, ended=True) == [3, 4]


@pytest.mark.covers("DS.4")
def test_an_item_of_a_long_run_is_rewritten_a_few_times() -> None:
    files: list[Extent] = []
    written = 0
    for number in range(1, 4001):
        files.append(Extent(number, 1000, number, number))
        while found := to_merge(files, small_bytes=SMALL, ended=False):
            size = sum(file.bytes for file in found)
            written += size
            merged = Extent(found[0].number, size, found[0].first_batch, found[-1].last_batch)
            files = sorted(
                [*(file for file in files if file not in found), merged],
                key=lambda file: file.first_batch,
            )
    assert sum(file.bytes for file in files) == 4_000_000
    assert written <= 4 * 4_000_000
    assert len(files) <= 40


@given(st.lists(st.integers(1, 2 * SMALL), max_size=60), st.booleans())
def test_what_is_chosen_are_small_neighbours(sizes: list[int], ended: bool) -> None:
    found = chosen(extents(*sizes), ended=ended)
    if found:
        assert found == list(range(found[0], found[-1] + 1))
        assert len(found) >= 2
        assert all(sizes[number - 1] < SMALL for number in found)
