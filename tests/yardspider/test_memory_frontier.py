"""The frontier in memory gives the answers of the seed service's own stores."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.seeds.engine.errors import BadSeed, WrongSeedLease
from apps.seeds.engine.rules import FrontierRules
from apps.seeds.stores.factory import open_store
from yardkit.protocol import SeedAnswer, SeedFinish, SeedOutcome
from yardkit.protocol.seeds import Seed
from yardkit.seeds import CallRefused
from yardspider.seeds.memory import MemoryFrontier
from yardspider.testing import BEGIN_MS

DAY = 86_400_000
RULES = FrontierRules()

added = st.builds(
    Seed,
    st.sampled_from(["a", "b", "c", "d", "", "e\n"]),
    st.sampled_from([None, None, BEGIN_MS, BEGIN_MS + 5000, BEGIN_MS + DAY, 7]),
    st.sampled_from([None, 0, 1, 2]),
    urgent=st.sampled_from([False, False, True]),
)
steps = st.one_of(
    st.tuples(st.just("add"), st.lists(added, max_size=4)),
    st.tuples(st.just("lease"), st.integers(1, 4)),
    st.tuples(st.just("finish"), st.tuples(st.integers(0, 9), st.sampled_from(SeedOutcome))),
    st.tuples(st.just("give_back"), st.integers(0, 9)),
    st.tuples(st.just("extend"), st.integers(0, 9)),
    st.tuples(st.just("pass"), st.sampled_from([10, 4000, 11_000, DAY])),
)


@pytest.mark.slow("1 s")
@pytest.mark.covers("S3.2", "S3.4", "S3.11", "S3.15")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(history=st.lists(steps, max_size=30))
def test_the_same_history_has_the_same_answers(tmp_path_factory: Any, history: Any) -> None:
    folder: Path = tmp_path_factory.mktemp("store")
    store: Any = open_store(f"rocksdb://{folder}/seeds?sync=0")
    now = BEGIN_MS
    memory = MemoryFrontier(lease_seconds=10, clock=lambda: now)
    leases: list[tuple[Any, Any]] = []
    for kind, value in history:
        store.expire(now=now)
        if kind == "pass":
            now += value
        elif kind == "add":
            assert asyncio.run(memory.add(value)) == answers(store, value, now)
        elif kind == "lease":
            theirs = store.lease(1, owner="run", limit=value, seconds=10, now=now)
            ours = asyncio.run(memory.lease(value, seconds=0, wait_seconds=0))
            assert ours.seeds == theirs.seeds
            if not ours.seeds:
                assert ours.next_due == store.next_due(1, now=now)
            if ours.seeds:
                assert ours.deadline == theirs.deadline
                leases.append((ours, theirs))
        elif leases:
            ours, theirs = leases[(value[0] if kind == "finish" else value) % len(leases)]
            if kind == "finish":
                one = ours.seeds[value[0] % len(ours.seeds)]
                told = [
                    [SeedFinish(one.segment, one.key, lease.generation, value[1])]
                    for lease in (ours, theirs)
                ]
                mine = asyncio.run(memory.finish(told[0], []))
                assert mine.answers == store.finish(1, told[1], owner="run", now=now)
            else:
                assert asked(memory, kind, ours) == stored(store, kind, theirs, now)
    store.close()


def answers(store: Any, seeds: list[Seed], now: int) -> list[Any]:
    told: list[Any] = []
    for one in RULES.resolve_all(seeds):
        if isinstance(one, BadSeed):
            told.append(refusal(one.code))
            continue
        added = store.add(1, [one], now=now)[0]
        told.append(known(added))
    return told


def refusal(code: str) -> Any:
    return SeedAnswer(code, text=f"the seed is refused: {code}")


def known(added: Any) -> Any:
    if added.new:
        return SeedAnswer("new", added.since)
    return SeedAnswer("duplicate", added.since, added.state)


def asked(memory: MemoryFrontier, kind: str, lease: Any) -> Any:
    try:
        if kind == "extend":
            return asyncio.run(memory.extend(lease.generation, seconds=10))
        return asyncio.run(memory.give_back(lease.generation))
    except CallRefused as refused:
        return refused.code


def stored(store: Any, kind: str, lease: Any, now: int) -> Any:
    try:
        if kind == "extend":
            return store.extend(1, lease.generation, owner="run", seconds=10, now=now)
        return store.give_back(1, lease.generation, owner="run", now=now)
    except WrongSeedLease:
        return "wrong_lease"
