"""bench seeds: adds of which most are duplicates, then lease and finish of all, in batches.

Beside it scrapy-redis, a slice after each slice of ours, so that both meet the same machine.
Seconds are those of the wall clock, because both sides also wait for others: the disk, Redis.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any, Final

from apps.seeds.engine.filters import FilterSettings
from apps.seeds.engine.keys import key_resolver
from apps.seeds.engine.rules import FrontierRules
from apps.seeds.engine.seeds import Outcome, ResolvedSeed, Seed
from apps.seeds.stores.base import Finish, SeedStore
from apps.seeds.stores.factory import open_store
from tools.benches.measuring import BenchFailed, conditions, usage
from tools.benches.scrapy_redis_peer import Peer, scrapy_redis

SEEDS: Final = 1_000_000
NEW_SHARE: Final = 0.4
BATCH: Final = 1000
# The peer does every so manieth part of the work.
PEER_PART: Final = 20
CANONICAL: Final = 50_000
# The pace is told anew after so many.
STRETCH: Final = 1_000_000
LIMIT_FILTER_BYTES: Final = 3

_FRONTIER: Final = 1
_CANONICAL_FRONTIER: Final = 2
_NOW: Final = 1_780_056_000_000
_RULES: Final = FrontierRules()


def run(*, seeds: int, scales: Sequence[int], store: str, peer: bool) -> dict[str, Any]:
    """Add ``seeds`` seeds times each of ``scales``, the first one beside the peer; the JSON object.

    ``store``: address of an empty one; "": RocksDB in a folder of its own.

    Raises:
        BenchFailed: the peer is missing, a seed was lost, or the store is not empty.
    """
    before = conditions()
    folder = Path(tempfile.mkdtemp(prefix="crawlyard-bench-"))
    try:
        steps: list[dict[str, Any]] = []
        theirs: dict[str, Any] | None = None
        for scale in scales:
            with ExitStack() as stack:
                beside = stack.enter_context(scrapy_redis(folder)) if peer and not steps else None
                url = store or f"rocksdb://{folder}/seeds-{scale}"
                step, found = _measure(url, scale * seeds, beside)
            steps.append(step)
            theirs = theirs or found
    finally:
        shutil.rmtree(folder)
    ours = steps[0]
    return {
        "bench": "seeds",
        "store": (store or "rocksdb").partition(":")[0],
        "batch": BATCH,
        "versions": {
            name: version(name)
            for name in ("rocksdict", "rbloom", *(("scrapy-redis", "scrapy") if peer else ()))
        },
        **before,
        "ours": ours,
        "peer": theirs,
        "ratio": theirs and theirs["adds_ratio"],
        "limit": {"filter_bytes_per_seed": LIMIT_FILTER_BYTES},
        "limit_ratio": round(ours["filter_bytes_per_seed"] / LIMIT_FILTER_BYTES, 2),
        "growth": {
            "steps": steps,
            "add_ratio": round(steps[-1]["cpu_us_per_add"] / steps[0]["cpu_us_per_add"], 2),
        },
    }


class _Side:
    """Seconds of one side, by the wall clock and of its processors."""

    def __init__(self, other_cpu: Callable[[], float] = lambda: 0.0) -> None:
        self._other_cpu = other_cpu
        self.seconds = self.cpu_seconds = 0.0
        self.done = 0

    def time(self, work: Callable[[], int], count: int) -> int:
        """``work``, which does ``count`` units; what it says."""
        began, cpu = time.perf_counter(), time.process_time() + self._other_cpu()
        answer = work()
        self.seconds += time.perf_counter() - began
        self.cpu_seconds += time.process_time() + self._other_cpu() - cpu
        self.done += count
        return answer

    def rate(self) -> float:
        """Units in a second."""
        return self.done / self.seconds

    def cpu_us(self) -> float:
        """Microseconds of processors for a unit."""
        return round(1e6 * self.cpu_seconds / self.done, 2)


class _Pace:
    """What each million of one kind of work took, so that a store which slows down shows."""

    def __init__(self, work: str, side: _Side) -> None:
        self._work = work
        self._side = side
        self._seconds = self._cpu_seconds = 0.0
        self.stretches: list[dict[str, Any]] = []

    def note(self) -> None:
        """To be called after each batch."""
        side = self._side
        if side.done < STRETCH * (len(self.stretches) + 1):
            return
        now = usage(os.getpid())
        self.stretches.append(
            {
                "work": self._work,
                "until": side.done,
                "seconds": round(side.seconds - self._seconds, 2),
                "cpu_seconds": round(side.cpu_seconds - self._cpu_seconds, 2),
                "rss_mb": round(now.rss_mb) if now else None,
            }
        )
        self._seconds, self._cpu_seconds = side.seconds, side.cpu_seconds


def _measure(
    url: str, seeds: int, peer: Peer | None
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    store = open_store(url)
    try:
        if store.segments(_FRONTIER):
            raise BenchFailed("the store has seeds already; the bench needs an empty one")
        try:
            return _compare(store, seeds, peer)
        finally:
            for frontier in (_FRONTIER, _CANONICAL_FRONTIER):
                for one in store.segments(frontier):
                    store.drop_segment(frontier, one.segment, leased_too=True)
    finally:
        store.close()


def _compare(
    store: SeedStore, seeds: int, peer: Peer | None
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    expected = round(seeds * NEW_SHARE)
    for frontier in (_FRONTIER, _CANONICAL_FRONTIER):
        store.set_filter(frontier, FilterSettings(expected))
    cpu = peer.server_cpu_seconds if peer else lambda: 0.0
    adding, leasing, peer_adding, peer_taking = _Side(), _Side(), _Side(cpu), _Side(cpu)
    add_pace, lease_pace = _Pace("add", adding), _Pace("lease_finish", leasing)
    new = peer_new = 0
    # Of its own, so that as many of them are new.
    for_peer = _batches(max(BATCH, seeds // PEER_PART))
    for number, urls in enumerate(_batches(seeds)):
        new += adding.time(lambda: _add(store, _FRONTIER, _RULES, urls), len(urls))  # noqa: B023
        add_pace.note()
        theirs = next(for_peer, None) if peer and number % PEER_PART == 0 else None
        if peer and theirs:
            peer_new += peer_adding.time(lambda: peer.add(theirs), len(theirs))  # noqa: B023
    filters = store.segments(_FRONTIER)[0].filter
    taken = finished = 0
    while True:
        taken = leasing.time(lambda: _lease_and_finish(store), 0)
        leasing.done += taken
        lease_pace.note()
        finished += taken
        if not taken:
            break
        if peer and finished % (PEER_PART * BATCH) == 0:
            peer_taking.done += peer_taking.time(lambda: peer.take(BATCH), 0)
    if peer:
        peer_taking.done += peer_taking.time(lambda: peer.take(seeds), 0)
    books = store.segments(_FRONTIER)[0].books
    if not books.balance() or not new == finished == books.succeeded == _new_in(seeds):
        raise BenchFailed(f"{_new_in(seeds)} seeds were new, {books} were counted")
    ours = {
        "seeds": seeds,
        "new": new,
        "lost": _new_in(seeds) - finished,
        "adds_per_second": round(adding.rate()),
        "lease_finish_per_second": round(leasing.rate()),
        "cpu_us_per_add": adding.cpu_us(),
        "cpu_us_per_lease_finish": leasing.cpu_us(),
        "filter_bytes_per_seed": round((filters.size_bytes if filters else 0) / new, 2),
        "filter_rate": filters.rate if filters else None,
        "canonical_adds_per_second": _canonical_rate(store),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "pace": add_pace.stretches + lease_pace.stretches,
    }
    if not peer:
        return ours, None
    return ours, {
        "seeds": peer_adding.done,
        "new": peer_new,
        "adds_per_second": round(peer_adding.rate()),
        "takes_per_second": round(peer_taking.rate()),
        "cpu_us_per_add": peer_adding.cpu_us(),
        "cpu_us_per_take": peer_taking.cpu_us(),
        "adds_ratio": round(adding.rate() / peer_adding.rate(), 1),
        "lease_finish_ratio": round(leasing.rate() / peer_taking.rate(), 1),
    }


def _new_in(seeds: int) -> int:
    return len(range(0, seeds, 5)) + len(range(2, seeds, 5))


def _batches(seeds: int) -> Iterator[list[str]]:
    """URLs, two of five new, the others of before; the same ones each time."""
    source = Random(5)  # noqa: S311 - no secret
    count = 0
    batch = []
    for number in range(seeds):
        # The first of all is new, too.
        if number % 5 in (0, 2):
            one, count = count, count + 1
        else:
            one = source.randrange(count)
        batch.append(f"https://shop.example/{one % 977}/item-{one}.html?page={one % 13}")
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _add(store: SeedStore, frontier: int, rules: FrontierRules, urls: Sequence[str]) -> int:
    resolved = rules.resolve_all([Seed(url, _NOW) for url in urls])
    taken = [one for one in resolved if isinstance(one, ResolvedSeed)]
    return sum(one.new for one in store.add(frontier, taken, now=_NOW))


def _lease_and_finish(store: SeedStore) -> int:
    lease = store.lease(_FRONTIER, owner="bench", limit=BATCH, seconds=60, now=_NOW)
    finishes = [
        Finish(one.segment, one.key, lease.generation, Outcome.SUCCESS) for one in lease.seeds
    ]
    answers = store.finish(_FRONTIER, finishes, owner="bench", now=_NOW)
    return sum(one.code == "finished" for one in answers)


def _canonical_rate(store: SeedStore) -> int:
    """Adds in a second where keys are canonical URLs, as they are for the peer."""
    rules = FrontierRules(keys=key_resolver("canonical"))
    side = _Side()
    for urls in _batches(CANONICAL):
        side.time(lambda: _add(store, _CANONICAL_FRONTIER, rules, urls), len(urls))  # noqa: B023
    return round(side.rate())
