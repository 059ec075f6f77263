"""A process that does everything to a store once, and says so, until a failpoint kills it.

``python -m tests.seeds.stores.killed_worker FOLDER ROUND BATCH``: each line of its output is what
the store has answered, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from apps.seeds.engine.seeds import Outcome
from apps.seeds.stores.base import Finish, Lease
from apps.seeds.stores.rocks import RocksStore
from tests.seeds.stores.calls import DAY, FRONTIER, NOW, TODAY, keys, reopen_failed, seeds

OWNER = "worker"
# Beyond all rounds: what is leased stays in flight.
LONG_SECONDS = 50_000


def say(**answer: Any) -> None:
    """At once, for the next line may never come."""
    print(json.dumps(answer), flush=True)


def finishes(taken: Lease, outcome: Outcome) -> list[Finish]:
    """All of a lease."""
    return [Finish(one.segment, one.key, taken.generation, outcome) for one in taken.seeds]


def work(store: RocksStore, number: int, batch: int) -> None:
    """One round. Times rise by a second a round."""
    now = NOW + number * 1000
    names = [f"r{number}-{index}" for index in range(4 * batch)]
    for start in range(0, len(names), batch):
        some = names[start : start + batch]
        store.add(FRONTIER, seeds(*some, active_at=NOW), now=now)
        say(added=some)
    for _ in range(2):
        taken = store.lease(FRONTIER, owner=OWNER, limit=batch, seconds=LONG_SECONDS, now=now)
        say(leased=keys(taken), generation=taken.generation)
        few = [one for one in finishes(taken, Outcome.SUCCESS) if one.segment == TODAY][:50]
        store.finish(FRONTIER, few, owner=OWNER, now=now)
        say(finished=[one.key for one in few], generation=taken.generation)
        store.extend(FRONTIER, taken.generation, owner=OWNER, seconds=LONG_SECONDS, now=now)
    short = store.lease(FRONTIER, owner=OWNER, limit=100, seconds=0.5, now=now)
    store.expire(now=now + 600)
    back = store.lease(FRONTIER, owner=OWNER, limit=100, seconds=60, now=now)
    store.give_back(FRONTIER, back.generation, owner=OWNER, now=now)
    bad = store.lease(FRONTIER, owner=OWNER, limit=20, seconds=60, now=now)
    store.finish(FRONTIER, finishes(bad, Outcome.GIVEN_UP), owner=OWNER, now=now)
    say(failed=keys(bad))
    reopen_failed(store, TODAY, TODAY + DAY, now=now)
    say(reopened=keys(bad))
    store.reopen(FRONTIER, TODAY, bad.seeds[0].key, now=now)
    # Nobody has leased the last ones.
    say(forgetting=[names[-1]])
    store.forget(FRONTIER, TODAY, names[-1], now=now)
    say(forgotten=[names[-1]], expired=keys(short))
    store.add(FRONTIER, seeds("old", active_at=NOW - 9 * DAY), now=now)
    store.drop_segment(FRONTIER, TODAY - 9 * DAY, leased_too=True)
    say(dropped=True)


def main() -> None:
    """Work, close, end."""
    folder, number, batch = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    store = RocksStore(folder, sync=False)
    say(opened=True)
    work(store, number, batch)
    store.close()
    say(closed=True)


if __name__ == "__main__":
    main()
