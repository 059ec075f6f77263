"""Every store: old lines go, and stay away."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.joblogs.stores.base import BEGINNING, LogStore, Usage
from tests.joblogs.stores.lines import ALL, DAY, LONG_AGO, SECOND, batch, found, line, seqs

LATER = LONG_AGO + 100 * DAY


def _ten(store: LogStore, *, stream: str = "run:7", job: int = 5, project: int = 1) -> None:
    """Ten lines of 7 bytes, 12 hours apart, every other one an error."""
    lines = [
        line(
            n,
            f"text{n:03}",
            at=LONG_AGO + n * DAY / 2,
            level="ERROR" if n % 2 else "DEBUG",
            fingerprint="f" if n % 2 else "",
        )
        for n in range(1, 11)
    ]
    store.write([batch(lines, stream=stream, job=job, project=project)], now=LONG_AGO)


@pytest.mark.slow("7 s")
def test_lines_of_a_job_by_age(store: LogStore) -> None:
    _ten(store)
    _ten(store, stream="run:8", job=6)
    _ten(store, stream="build:1", job=0, project=2)
    before = LONG_AGO + 4 * DAY / 2
    assert store.delete(project=1, job=5, before=before, limit=100) == 3
    assert store.delete(project=1, job=5, before=before, limit=100) == 0
    assert seqs(store.page("run:7", after=BEGINNING, limit=99)) == [4, 5, 6, 7, 8, 9, 10]
    assert len(store.page("run:8", limit=99)) == len(store.page("build:1", limit=99)) == 10
    assert found(store, "text002", job=5) == []
    assert found(store, "text002", job=6) == [2]
    assert found(store, fingerprint="f", job=5) == [9, 7, 5]
    assert store.find("run:7", BEGINNING._replace(seq=3)) is None


def test_some_levels_go_sooner(store: LogStore) -> None:
    _ten(store)
    quiet = ["", "DEBUG", "INFO"]
    assert store.delete(project=1, job=5, before=LATER, levels=quiet, limit=100) == 5
    assert seqs(store.page("run:7", limit=99)) == [1, 3, 5, 7, 9]
    assert store.delete(project=1, job=5, before=LATER, levels=quiet, limit=100) == 0
    assert store.delete(project=1, job=5, before=LATER, levels=[], limit=100) == 0
    assert found(store, levels=["DEBUG"]) == []


def test_no_more_than_about_the_limit(store: LogStore) -> None:
    _ten(store)
    _ten(store, stream="run:8", job=6)
    assert store.delete(project=1, job=5, before=LATER, limit=4) == 4
    assert len(store.page("run:7", limit=99)) == 6
    total = 4
    while deleted := store.delete(project=1, job=5, before=LATER, limit=4):
        total += deleted
    assert total == 10
    assert store.page("run:7", limit=99) == []


@pytest.mark.covers("S1.18")
def test_what_was_deleted_does_not_come_back(store: LogStore) -> None:
    _ten(store)
    assert store.delete(project=1, job=5, before=LONG_AGO + 3 * DAY, limit=100) == 5
    _ten(store)
    assert seqs(store.page("run:7", limit=99)) == [6, 7, 8, 9, 10]
    assert store.delete(project=1, job=5, before=LATER, limit=100) == 5
    store.prune(now=LONG_AGO + 5 * DAY)
    _ten(store)
    assert store.page("run:7", limit=99) == []
    state = store.stream_state("run:7")
    assert state is not None
    assert (state.lines, state.bytes, state.forgotten, state.missing) == (0, 0, 10, {})
    assert store.write([batch([line(11)])], now=LONG_AGO) == 1


def test_executions_silent_for_long_are_forgotten(store: LogStore) -> None:
    _ten(store)
    _ten(store, stream="run:8")
    store.delete(project=1, job=5, before=LONG_AGO + 2 * DAY, limit=100)
    store.prune(now=LONG_AGO + 500 * DAY)
    assert store.stream_state("run:7") is not None
    while store.delete(project=1, job=5, before=LATER, limit=100):
        pass
    store.prune(now=LONG_AGO + 500 * DAY)
    assert store.stream_state("run:7") is None
    assert store.usages() == []
    assert store.groups(ALL, limit=9) == []


def test_the_oldest_of_a_job_that_is_too_big(store: LogStore) -> None:
    _ten(store)
    _ten(store, stream="run:9")
    _ten(store, stream="run:8", job=6)
    assert store.delete_oldest(project=1, job=5, keep_bytes=140, limit=100) == 0
    assert store.delete_oldest(project=1, job=5, keep_bytes=139, limit=100) == 1
    assert store.delete_oldest(project=1, job=5, keep_bytes=70, limit=100) == 9
    left = store.page("run:7", limit=99) + store.page("run:9", limit=99)
    assert sorted(seqs(left)) == [6, 6, 7, 7, 8, 8, 9, 9, 10, 10]
    assert len(store.page("run:8", limit=99)) == 10
    assert store.delete_oldest(project=1, job=5, keep_bytes=0, limit=3) == 3
    assert store.delete_oldest(project=1, job=5, keep_bytes=0, limit=100) == 7
    assert [one.job for one in store.usages()] == [6]


def test_how_much_is_kept_of_each_job(store: LogStore) -> None:
    assert store.usages() == []
    _ten(store)
    _ten(store, stream="run:8")
    _ten(store, stream="build:1", job=0, project=2)
    store.delete(project=1, job=5, before=LONG_AGO + 1.5 * DAY, limit=100)
    usages = {(one.project, one.job): one for one in store.usages()}
    assert set(usages) == {(1, 5), (2, 0)}
    assert usages[2, 0] == Usage(2, 0, 10, 70, LONG_AGO + DAY / 2)
    assert (usages[1, 5].lines, usages[1, 5].bytes) == (16, 112)
    assert usages[1, 5].oldest_at == LONG_AGO + 1.5 * DAY


def test_pruning_drops_no_line(store: LogStore) -> None:
    store.prune(now=LONG_AGO)
    _ten(store)
    store.prune(now=LONG_AGO + timedelta(days=9000))
    assert len(store.page("run:7", limit=99)) == 10
    assert len(found(store, "text001")) == 1
    store.write([batch([line(20, at=LONG_AGO + 20 * SECOND)])], now=LONG_AGO)
    assert len(store.search(ALL, limit=99).lines) == 11
