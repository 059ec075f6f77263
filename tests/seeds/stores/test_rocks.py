"""What is RocksDB's own: one owner, restarts, filters that are built again."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.seeds.engine.errors import SeedStoreUnavailable, StoreInUse
from apps.seeds.engine.filters import FilterSettings
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, State
from apps.seeds.stores.rocks import RocksStore
from apps.seeds.stores.rocks.bloom_cache import SLICE
from apps.seeds.stores.rocks.layout import ROOT, ROOT_KEY
from apps.seeds.stores.rocks.transaction import RocksFolder
from tests.runtime.processes import ROOT as REPOSITORY
from tests.seeds.stores.calls import (
    DAY,
    FRONTIER,
    NOW,
    TODAY,
    add,
    books,
    codes,
    finish,
    keys,
    lease,
    seeds,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of one store after the other."""
    return tmp_path / "seeds"


@pytest.fixture
def open_store(folder: Path) -> Iterator[list[RocksStore]]:
    """Stores to close, whatever happens."""
    opened: list[RocksStore] = []
    yield opened
    for store in opened:
        store.close()


def opened(folder: Path, stores: list[RocksStore], **options: int) -> RocksStore:
    """The store of a folder."""
    stores.append(RocksStore(folder, sync=False, **options))
    return stores[-1]


OTHER_OWNER = """
import sys
from pathlib import Path
from apps.seeds.engine.errors import SeedError
from apps.seeds.stores.rocks import RocksStore
try:
    RocksStore(Path(sys.argv[1]))
except SeedError as refusal:
    print(refusal.code, refusal)
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=REPOSITORY,
        env={"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'platform'}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.covers("S3.18")
def test_a_second_owner_is_refused(folder: Path, open_store: list[RocksStore]) -> None:
    first = opened(folder, open_store)
    refused = run(OTHER_OWNER, str(folder))
    assert refused.stdout.startswith(f"store_in_use {folder} belongs to another seed service")
    with pytest.raises(StoreInUse, match=r"one process alone may own it"):
        RocksStore(folder)
    first.close()
    assert run(OTHER_OWNER, str(folder)).stdout == ""


@pytest.mark.covers("S3.1")
def test_everything_outlives_a_restart(folder: Path, open_store: list[RocksStore]) -> None:
    store = opened(folder, open_store)
    add(store, "a", "b", "c", active_at=NOW)
    add(store, "a")
    taken = lease(store, 3)
    before = store.segments(FRONTIER)
    rows = list(store.export(FRONTIER, TODAY))
    store.close()
    store = opened(folder, open_store)
    assert [one.books for one in store.segments(FRONTIER)] == [one.books for one in before]
    assert list(store.export(FRONTIER, TODAY)) == rows
    assert add(store, "c", "d", active_at=NOW) == [False, True]
    assert codes(finish(store, taken)) == ["finished"] * 3
    assert keys(lease(store)) == ["c", "d"]
    assert lease(store).generation > taken.generation


def test_leases_run_out_also_after_a_restart(folder: Path, open_store: list[RocksStore]) -> None:
    store = opened(folder, open_store)
    add(store, "a", "b")
    lease(store, 1)
    store.close()
    store = opened(folder, open_store)
    assert store.expire(now=NOW + 59_999) == 0
    assert store.expire(now=NOW + 60_000) == 1
    assert keys(lease(store, now=NOW + 60_000)) == ["b", "a"]


@pytest.mark.covers("S3.8")
def test_a_filter_is_loaded_again(
    folder: Path, open_store: list[RocksStore], caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(folder, open_store)
    store.set_filter(FRONTIER, FilterSettings(expected=5000, rate=0.01))
    add(store, *(f"k{number}" for number in range(2000)))
    before = store.segments(FRONTIER)[0].filter
    store.close()
    store = opened(folder, open_store)
    assert add(store, "k7") == [False]
    assert store.segments(FRONTIER)[0].filter == before
    assert caplog.records == []


@pytest.mark.slow("2 s")
@pytest.mark.covers("S3.8")
@pytest.mark.parametrize("damage", ["cut", "missing", "older"])
def test_a_filter_that_cannot_be_trusted_is_built_again(
    folder: Path, open_store: list[RocksStore], caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    store = opened(folder, open_store)
    names = [f"k{number}" for number in range(SLICE + 500)]
    for start in range(0, len(names), 5000):
        add(store, *names[start : start + 5000])
    store.close()
    path = folder / "filters" / f"{FRONTIER}-{DEFAULT_SEGMENT}.bloom"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:1000])
    elif damage == "missing":
        path.unlink()
    else:
        shutil.copy(path, folder / "older")
        store = opened(folder, open_store)
        add(store, "k-new")
        names.append("k-new")
        store.close()
        (folder / "older").rename(path)
    store = opened(folder, open_store)
    assert add(store, "k3", "x1") == [False, True]
    with caplog.at_level(logging.WARNING):
        state = store.segments(FRONTIER)[0].filter
    assert "built again" in caplog.text
    assert state is not None
    assert not state.ready
    while store.tend():
        pass
    state = store.segments(FRONTIER)[0].filter
    assert state is not None
    assert state.ready
    # Nothing is missing from it: every one is known, what came meanwhile too.
    assert not any(add(store, *names[-600:]))
    assert not any(add(store, *names[:600], "x1"))
    assert add(store, "x2") == [True]


def test_the_file_of_a_dropped_segment_misleads_nobody(
    folder: Path, open_store: list[RocksStore]
) -> None:
    store = opened(folder, open_store)
    add(store, "a", "b", active_at=NOW)
    store.close()
    path = folder / "filters" / f"{FRONTIER}-{TODAY}.bloom"
    shutil.copy(path, folder / "kept")
    store = opened(folder, open_store)
    store.drop_segment(FRONTIER, TODAY)
    assert not path.exists()
    # As many keys as before, but others.
    add(store, "c", "d", active_at=NOW)
    store.close()
    (folder / "kept").rename(path)
    store = opened(folder, open_store)
    assert add(store, "c", "d", active_at=NOW) == [False, False]


def test_more_segments_than_filters_in_memory(folder: Path, open_store: list[RocksStore]) -> None:
    store = opened(folder, open_store, max_filters=2)
    for _ in range(2):
        for day in range(5):
            add(store, "a", f"b{day}", active_at=NOW - day * DAY)
    filters = [one.filter for one in store.segments(FRONTIER)]
    assert sum(one is not None for one in filters) == 2
    found = [one.books for one in store.segments(FRONTIER)]
    assert [(one.added, one.duplicates) for one in found] == [(2, 2)] * 5


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SeedStoreUnavailable, match=r"file: File exists"):
        RocksStore(tmp_path / "file")
    (tmp_path / "broken" / "db").mkdir(parents=True)
    (tmp_path / "broken" / "db" / "CURRENT").write_text("nonsense")
    with pytest.raises(SeedStoreUnavailable, match="broken: "):
        RocksStore(tmp_path / "broken")


def test_a_folder_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    kernel = RocksFolder(tmp_path, sync=False, max_filters=1)
    kernel.db.put(ROOT_KEY, ROOT.pack(99, 0, 0))
    kernel.close()
    with pytest.raises(SeedStoreUnavailable, match="is of version 99, this program reads 1"):
        RocksStore(tmp_path)


def test_what_could_not_be_written_is_not_believed(
    folder: Path, open_store: list[RocksStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(folder, open_store)
    add(store, "a", "b")
    monkeypatch.setenv("FAILPOINTS", "")
    from yardkit import failpoints

    failpoints.configure(
        {"FAILPOINTS": ",".join(f"seeds.{name}.before_write=raise" for name in ("add", "lease"))}
    )
    try:
        with pytest.raises(failpoints.FailpointError):
            add(store, "c")
        with pytest.raises(failpoints.FailpointError):
            lease(store)
    finally:
        failpoints.configure({})
    assert (books(store).added, books(store).leased) == (2, 0)
    assert add(store, "c") == [True]
    taken = lease(store)
    assert keys(taken) == ["a", "b", "c"]
    assert codes(finish(store, taken)) == ["finished"] * 3


def test_a_queue_that_was_emptied_is_not_walked_again(
    folder: Path, open_store: list[RocksStore]
) -> None:
    store = opened(folder, open_store)
    add(store, *(f"k{number}" for number in range(3000)))
    finish(store, lease(store, 2000))
    where = store._folder.heads
    (head,) = where.values()
    assert head > b"p"
    found = store._folder.scan(next(iter(where.values())), b"q")
    assert len(list(found)) == 1000
    assert store.lookup(FRONTIER, DEFAULT_SEGMENT, "k1999") is not None


@pytest.mark.parametrize("sync", [True, False])
def test_both_ways_to_write_keep_seeds(folder: Path, sync: bool) -> None:
    store = RocksStore(folder, sync=sync)
    store.add(FRONTIER, seeds("a"), now=NOW)
    store.close()
    store = RocksStore(folder, sync=sync)
    found = store.lookup(FRONTIER, DEFAULT_SEGMENT, "a")
    store.close()
    assert found is not None
    assert found.state == State.INIT


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MiB."""
    if os.geteuid() != 0:
        pytest.skip("a small disk can be mounted by root only")
    made = tmp_path / "small"
    made.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(made)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    yield made
    subprocess.run(["umount", "--lazy", str(made)], check=True)


@pytest.mark.slow("3 s")
def test_a_full_disk_loses_nothing_that_was_promised(
    small: Path, open_store: list[RocksStore]
) -> None:
    store = opened(small / "seeds", open_store)
    promised = 0
    with pytest.raises(SeedStoreUnavailable, match="No space left"):  # noqa: PT012 - until it is full
        while True:
            batch = [f"{promised + number}-{'x' * 500}" for number in range(500)]
            promised += sum(add(store, *batch))
    assert books(store).added == promised
    with pytest.raises(SeedStoreUnavailable):
        lease(store)
    with pytest.raises(SeedStoreUnavailable):
        store.close()
    assert not list((small / "seeds" / "filters").glob("*.tmp"))
    more_space = ["mount", "-o", "remount,size=200m", str(small)]
    subprocess.run(more_space, check=True)
    store = opened(small / "seeds", open_store)
    assert books(store).added == promised > 0
    assert len(list(store.export(FRONTIER, DEFAULT_SEGMENT))) == promised
    assert add(store, "one more") == [True]
