"""SIGKILL at every place where a store writes, while many seeds are in flight: the books stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from apps.seeds.engine.seeds import FINAL, PENDING, Outcome, State
from apps.seeds.stores.base import BOOKS_FIELDS, Finish, Known, SeedStore
from apps.seeds.stores.rocks import RocksStore
from tests.plugins.measurements import Measured
from tests.runtime.processes import ROOT
from tests.seeds.stores.calls import DAY, FRONTIER, NOW, TODAY, books, codes, seeds
from tests.seeds.stores.killed_worker import OWNER

WORKER = "tests.seeds.stores.killed_worker"
# At which hit: before it something was promised.
WRITES = {
    "add": 3,
    "lease": 3,
    "extend": 2,
    "finish": 2,
    "give_back": 1,
    "expire": 1,
    "reopen": 1,
    "forget": 1,
    "reopen_failed": 1,
    "drop": 1,
}
POINTS = [
    f"seeds.{name}.{when}_write=kill@{hit}"
    for name, hit in WRITES.items()
    for when in ("before", "after")
]
POINTS += ["seeds.filter.before_rename=kill"]
# In each round twice as many seeds stay in flight.
BATCH = int(os.environ.get("CRAWLYARD_TEST_SEEDS_IN_FLIGHT", "10000")) // (2 * len(POINTS))


def run_until_killed(folder: Path, number: int, point: str) -> list[dict[str, Any]]:
    """One round; what the process was told before it died."""
    done = subprocess.run(
        [sys.executable, "-m", WORKER, str(folder), str(number), str(BATCH)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}", "FAILPOINTS": point},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class Story:
    """What was promised in all rounds."""

    def __init__(self) -> None:
        self.added: set[str] = set()
        self.finished: dict[str, int] = {}
        self.forgetting: set[str] = set()
        self.forgotten: set[str] = set()
        self.lost: set[str] = set()
        # Those that were handed out again after their end.
        self.twice: set[str] = set()

    def hear(self, answers: list[dict[str, Any]]) -> None:
        for answer in answers:
            self.added |= set(answer.get("added", ()))
            self.forgetting |= set(answer.get("forgetting", ()))
            self.forgotten |= set(answer.get("forgotten", ()))
            finished = answer.get("finished", ())
            self.twice |= self.finished.keys() & set(finished)
            self.finished |= dict.fromkeys(finished, answer.get("generation", 0))

    def check(self, store: SeedStore, number: int) -> None:
        rows = {one.key: one for one in store.export(FRONTIER, TODAY)}
        self.lost |= (self.added - self.forgetting) - rows.keys()
        self.lost |= {
            key for key in self.finished if key not in rows or rows[key].state != State.SUCCEEDED
        }
        assert not self.forgotten & rows.keys()
        counted = count(rows)
        told = books(store, TODAY)
        assert {name: getattr(told, name) for name in counted} == dict(counted)
        assert told.added == len(rows) + told.forgotten
        batches = Counter(key.split("-")[0] for key in rows)
        # A batch is there as a whole or not at all; one seed of a round may be forgotten.
        assert all(found % BATCH in (0, BATCH - 1) for found in batches.values())
        assert all(one.books.balance() for one in store.segments(FRONTIER))
        again = [
            Finish(TODAY, key, generation, Outcome.FAILURE)
            for key, generation in list(self.finished.items())[-100:]
        ]
        answers = store.finish(FRONTIER, again, owner=OWNER, now=NOW + number * 1000)
        assert set(codes(answers)) <= {"repeated"}


def count(rows: dict[str, Known]) -> Counter[str]:
    """The books as the seeds themselves tell them."""
    found = Counter(dict.fromkeys(BOOKS_FIELDS[2:7], 0))
    names = {State.RUNNING: "leased", State.SUCCEEDED: "succeeded", State.FAILED: "failed"}
    names |= dict.fromkeys(PENDING, "pending") | {State.IGNORED: "ignored"}
    for one in rows.values():
        found[names[one.state]] += 1
    return found


@pytest.mark.fault
@pytest.mark.timeout(600)
@pytest.mark.covers("S3.1", "S3.15", "S3.16")
def test_no_seed_is_lost_or_ended_twice_wherever_the_process_dies(
    tmp_path: Path, measured: Measured
) -> None:
    folder, story = tmp_path / "seeds", Story()
    for number, point in enumerate(POINTS):
        story.hear(run_until_killed(folder, number, point))
        store = RocksStore(folder, sync=False)
        try:
            story.check(store, number)
        finally:
            store.close()
        assert not story.lost, point
        assert not story.twice, point
    measured(of=len(story.added), lost=len(story.lost), twice=len(story.twice))
    assert len(story.added) > 2 * len(POINTS) * BATCH
    finish_everything(folder)


def finish_everything(folder: Path) -> None:
    """Whatever was in flight comes back, and every seed ends once."""
    store = RocksStore(folder, sync=False)
    try:
        now = NOW + 3 * DAY
        in_flight = books(store, TODAY).leased
        assert store.expire(now=now) == in_flight
        while True:
            taken = store.lease(FRONTIER, owner="w", limit=5000, seconds=60, now=now)
            if not taken.seeds:
                break
            finishes = [
                Finish(one.segment, one.key, taken.generation, Outcome.SUCCESS)
                for one in taken.seeds
            ]
            answers = store.finish(FRONTIER, finishes, owner="w", now=now)
            assert set(codes(answers)) == {"finished"}
        told = books(store, TODAY)
        assert (told.pending, told.leased) == (0, 0)
        states = {one.state for one in store.export(FRONTIER, TODAY)}
        assert states <= FINAL
    finally:
        store.close()


@pytest.mark.fault
@pytest.mark.timeout(600)
def test_a_store_of_many_seeds_serves_soon_after_a_kill(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from apps.seeds.stores.rocks import RocksStore\n"
        "from tests.seeds.stores.calls import FRONTIER, NOW, seeds\n"
        "store = RocksStore(Path(sys.argv[1]), sync=False)\n"
        "for start in range(0, 200_000, 10_000):\n"
        "    names = [f'http://host/{n}' for n in range(start, start + 10_000)]\n"
        "    store.add(FRONTIER, seeds(*names, active_at=NOW), now=NOW)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    began = time.process_time()
    store = RocksStore(tmp_path, sync=False)
    answers = store.add(FRONTIER, seeds("http://host/7", "x", active_at=NOW), now=NOW)
    taken = store.lease(FRONTIER, owner="w", limit=10, seconds=60, now=NOW)
    print(f"serves after {time.process_time() - began:.2f} s of this process")
    store.close()
    assert [one.new for one in answers] == [False, True]
    assert [one.key for one in taken.seeds] == [f"http://host/{n}" for n in range(10)]
