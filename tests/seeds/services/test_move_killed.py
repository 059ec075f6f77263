"""SIGKILL to whoever moves seeds, and to the store that moves them: every key is there, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from apps.seeds.stores.base import SeedStore, SegmentCounts
from apps.seeds.stores.rocks import RocksStore
from tests.plugins.long_tests import FULL_FAULTS
from tests.plugins.measurements import Measured
from tests.plugins.migrated_databases import fill_data_folder
from tests.runtime.processes import ROOT
from tests.seeds.services.small_service import Desk
from tests.seeds.services.test_granularity import MONDAY

MOVER = "tests.seeds.services.mover"
# In each round the worker dies a little later; what it has done is done once more.
SLICE = "seeds.operation.slice=kill"
POINTS = ("seeds.operation.claimed=kill", *(f"{SLICE}@{hit}" for hit in (1, 2, 3, 5, 8, 13)))


def run(
    data: Path, broker: str, what: str, failpoints: str = ""
) -> subprocess.CompletedProcess[str]:
    """A process of its own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CRAWLYARD_", "DJANGO_", "FAILPOINTS"))
    }
    return subprocess.run(
        [sys.executable, "-m", MOVER, what],
        cwd=ROOT,
        env={
            **kept,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
            "CRAWLYARD_DATA": str(data),
            "BROKER_URL": broker,
            "FAILPOINTS": failpoints,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def total(store: SeedStore, frontier: int) -> SegmentCounts:
    """The sums over all segments, each of which balances."""
    sums = SegmentCounts()
    for one in store.segments(frontier):
        assert one.books.balance(), one
        sums = sums.plus(one.books)
    return sums


@pytest.mark.fault
@pytest.mark.timeout(300)
@pytest.mark.covers("S3.2", "S3.3")
def test_a_move_whose_workers_are_killed_ends_exactly(
    desk: Desk, tmp_path: Path, settings: Any, measured: Measured
) -> None:
    data = tmp_path / "data"
    fill_data_folder(data)
    begun = run(data, settings.BROKER_URL, "begin")
    assert begun.returncode == 0, begun.stderr
    for point in POINTS if FULL_FAULTS else POINTS[::3]:
        killed = run(data, settings.BROKER_URL, "work", point)
        assert killed.returncode == -9, killed.stderr
        now = json.loads(run(data, settings.BROKER_URL, "show").stdout)
        assert now["state"] == "running", now
        # Frozen as long as seeds are between their places.
        assert now["frozen"] or now["phase"] == "freeze"
        frontier = now["frontier"]
        beside = frontier | 1 << 31
        both = total(desk.store, frontier).plus(total(desk.store, beside))
        assert both.added + both.duplicates == 45
    done = run(data, settings.BROKER_URL, "work")
    assert done.returncode == 0, done.stderr
    now = json.loads(run(data, settings.BROKER_URL, "show").stdout)
    assert (now["state"], now["frozen"], now["segments"]) == ("done", False, "week")
    assert desk.store.segments(beside) == []
    assert [one.segment for one in desk.store.segments(frontier)] == [MONDAY]
    keys = Counter(one.key for one in desk.store.export(frontier, MONDAY))
    wanted = Counter({f"http://host/{number}": 1 for number in range(35)})
    lost, twice = (wanted - keys).total(), (keys - wanted).total()
    measured(of=wanted.total(), lost=lost, twice=twice)
    assert keys == wanted
    assert total(desk.store, frontier) == SegmentCounts(added=35, duplicates=10, pending=35)


STORE_MOVES = """
import sys
from pathlib import Path
from apps.seeds.stores.rocks import RocksStore
from tests.seeds.stores.calls import DAY, FRONTIER, NOW, seeds
from tests.seeds.stores.test_contract_transfers import BESIDE, by, same, move_all
store = RocksStore(Path(sys.argv[1]), sync=False)
if not store.segments(FRONTIER) and not store.segments(BESIDE):
    for day in range(3):
        names = [f"k{number}" for number in range(10 * day, 10 * day + 15)]
        store.add(FRONTIER, seeds(*names, active_at=NOW - day * DAY), now=NOW)
move_all(store, FRONTIER, BESIDE, by("month"), limit=4)
move_all(store, BESIDE, FRONTIER, same, limit=4)
store.close()
"""


@pytest.mark.fault
@pytest.mark.timeout(300)
def test_a_move_whose_store_is_killed_ends_exactly(tmp_path: Path) -> None:
    def move(point: str) -> int:
        return subprocess.run(
            [sys.executable, "-c", STORE_MOVES, str(tmp_path)],
            cwd=ROOT,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}", "FAILPOINTS": point},
            capture_output=True,
            timeout=100,
            check=False,
        ).returncode

    for hit, when in ((1, "after"), (2, "before"), (4, "after"), (8, "before"), (6, "after")):
        assert move(f"seeds.move.{when}_write=kill@{hit}") == -9
        store = RocksStore(tmp_path, sync=False)
        both = total(store, 1).plus(total(store, 1 | 1 << 31))
        assert both.added + both.duplicates == 45
        store.close()
    assert move("") == 0
    store = RocksStore(tmp_path, sync=False)
    (segment,) = store.segments(1)
    assert segment.books == SegmentCounts(added=35, duplicates=10, pending=35)
    assert store.segments(1 | 1 << 31) == []
    keys = Counter(one.key for one in store.export(1, segment.segment))
    assert keys == Counter({f"k{number}": 1 for number in range(35)})
    store.close()
