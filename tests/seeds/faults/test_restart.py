"""A killed service with very many seeds serves again soon."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.e2e.daemon_processes import ROOT
from tests.plugins.measurements import Measured
from tests.seeds.faults.service_processes import DAEMON, FULL, SeedYard
from yardkit.protocol import Seed

pytestmark = [pytest.mark.fault, pytest.mark.services, pytest.mark.timeout(1200)]

SEEDS = 1_000_000 if FULL else 20_000
LEASED = SEEDS // 10
# Of processors, because other work may have them meanwhile.
MOST_SECONDS = 5.0

# Ends as a process that is killed does, in the middle of its work.
FILL = """
import os, sys
from apps.seeds.engine.rules import FrontierRules
from apps.seeds.stores.factory import open_store
from yardkit.protocol import Seed
url, frontier, count, leased, now = sys.argv[1], *map(int, sys.argv[2:])
store = open_store(url)
rules = FrontierRules()
for start in range(0, count, 10_000):
    some = [Seed(f"http://h/{n}", now - 1) for n in range(start, min(start + 10_000, count))]
    store.add(frontier, rules.resolve_all(some), now=now)
taken = 0
while taken < leased:
    limit = min(1000, leased - taken)
    lease = store.lease(frontier, owner="dead", limit=limit, seconds=3600, now=now)
    taken += len(lease.seeds)
os.kill(os.getpid(), 9)
"""


def test_serving_soon_after_a_kill_with_many_seeds(yard: SeedYard, measured: Measured) -> None:
    frontier = yard.frontier()
    now = int(time.time() * 1000)
    url = f"{yard.store_url}?sync=0" if yard.store_url.startswith("rocksdb") else yard.store_url
    numbers = map(str, (frontier, SEEDS, LEASED, now))
    done = subprocess.run(
        [sys.executable, "-c", FILL, url, *numbers],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    used = []
    for _ in range(2):
        measured(back_s=yard.start_serving(frontier))
        times = psutil.Process(yard.daemons.processes[DAEMON].pid).cpu_times()
        used.append(times.user + times.system)
        yard.kill()
    store = yard.store_url.partition(":")[0]
    measured(note=f"{store}: {max(used):.1f} s of processors")
    assert max(used) <= MOST_SECONDS
    yard.start_serving(frontier)
    client = yard.client(frontier)
    answers = client.add([Seed("http://h/7", now - 1), Seed("http://h/new", now - 1)])
    assert [one.code for one in answers] == ["duplicate", "new"]
    assert len(client.lease(100).seeds) == 100
    books = yard.books(frontier)
    more = books.added - SEEDS - 1
    measured(of=SEEDS + 1, lost=max(0, -more), twice=max(0, more))
    assert (books.added, books.leased) == (SEEDS + 1, LEASED + 100)
    yard.stop()
