"""Random histories: both stores answer as the model in plain Python does."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from apps.seeds.engine.errors import SeedInUse, SeedNotFinal, UnknownSeed, WrongSeedLease
from apps.seeds.engine.filters import FilterSettings
from apps.seeds.engine.keys import key_hash
from apps.seeds.engine.rules import FrontierRules, NewPlace
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, FINAL, Outcome, Seed, State
from apps.seeds.engine.segments import segment_resolver, time_zone
from apps.seeds.stores.base import Finish, Known, Lease, Regroup, SeedStore
from apps.seeds.stores.postgres import PostgresStore
from tests.seeds.stores.calls import DAY, FRONTIER, NOW, RULES, TODAY, reopen_failed
from tests.seeds.stores.conftest import open_rocks
from tests.seeds.stores.model import Entry, Model
from tests.seeds.stores.tables import check_queue

# So many histories of RocksDB, and a tenth of them of PostgreSQL.
HISTORIES = int(os.environ.get("CRAWLYARD_TEST_HISTORIES", "100"))

KEYS = [f"k{number}" for number in range(6)]
OWNERS = ["w1", "w2"]
TIMES = [None, NOW - DAY, NOW, NOW + 40_000, NOW + DAY]
UTC_ZONE = time_zone("UTC")
SEGMENTS = [DEFAULT_SEGMENT, TODAY - DAY, TODAY, TODAY + DAY]


def same(segment: int, key: str, _data: str, due: int) -> NewPlace:
    """No other rules."""
    return NewPlace(segment, key, due, kept=False)


REGROUPS: list[Regroup] = [
    same,
    FrontierRules(segments=segment_resolver("week", UTC_ZONE)).regroup,
    FrontierRules(segments=segment_resolver("hour", UTC_ZONE)).regroup,
    FrontierRules(keys=lambda data: f"k{int(data[1:]) % 3}").regroup,
]

seeds = strategies.builds(
    Seed,
    data=strategies.sampled_from(KEYS),
    active_at=strategies.sampled_from(TIMES),
    max_retry=strategies.sampled_from([None, 0, 1, 2]),
)
keys = strategies.sampled_from(KEYS)
owners = strategies.sampled_from(OWNERS)
segments = strategies.sampled_from(SEGMENTS)
outcomes = strategies.sampled_from(list(Outcome))


# A seed is not due before its segment begins.
knowns = strategies.builds(
    Known,
    segment=segments,
    key=keys,
    data=keys,
    state=strategies.sampled_from(list(State)),
    retry=strategies.integers(0, 2),
    max_retry=strategies.integers(0, 3),
    added_at=strategies.just(NOW - DAY),
    changed_at=strategies.just(NOW - 5),
    due=strategies.sampled_from([1, NOW, NOW + 40_000]),
    generation=strategies.just(3),
    ext=strategies.none(),
    owner=strategies.none(),
    deadline=strategies.none(),
).map(lambda one: msgspec.structs.replace(one, due=max(one.due, one.segment)))


class Histories(RuleBasedStateMachine):
    """Every call goes to the store and to the model, and both must say the same."""

    make: Callable[[Path], SeedStore]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="seeds-"))
        self.store = type(self).make(self.folder)
        self.settle()
        self.model = Model()
        self.now = NOW
        self.leases: list[Lease] = []

    def settle(self) -> None:
        """A filter so small that it is often wrong."""
        self.store.set_filter(FRONTIER, FilterSettings(expected=2, rate=0.3))

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    def entry(self, segment: int, key: str) -> Entry | None:
        return self.model.entries.get((segment, key))

    @rule(batch=strategies.lists(seeds, min_size=1, max_size=8))
    def add(self, batch: list[Seed]) -> None:
        resolved = [RULES.resolve(one) for one in batch]
        answers = self.store.add(FRONTIER, resolved, now=self.now)
        told = [(one.new, one.since, one.state) for one in answers]
        assert told == self.model.add(resolved, self.now)

    @rule(owner=owners, limit=strategies.integers(1, 6), seconds=strategies.sampled_from([20, 60]))
    def lease(self, owner: str, limit: int, seconds: int) -> None:
        taken = self.store.lease(FRONTIER, owner=owner, limit=limit, seconds=seconds, now=self.now)
        expected = self.model.lease(
            taken.generation, owner, limit, self.now + seconds * 1000, self.now
        )
        assert [one.key for one in taken.seeds] == expected
        assert all(taken.generation > one.generation for one in self.leases)
        if taken.seeds:
            self.leases.append(taken)

    @precondition(lambda self: self.leases)
    @rule(data=strategies.data(), owner=owners, outcome=outcomes)
    def finish(self, data: strategies.DataObject, owner: str, outcome: Outcome) -> None:
        taken = data.draw(strategies.sampled_from(self.leases))
        some = data.draw(strategies.lists(strategies.sampled_from(taken.seeds), min_size=1))
        self.tell([Finish(one.segment, one.key, taken.generation, outcome) for one in some], owner)

    @rule(
        segment=segments,
        key=keys,
        owner=owners,
        outcome=outcomes,
        generation=strategies.integers(-1, 20),
    )
    def finish_anything(
        self, segment: int, key: str, owner: str, outcome: Outcome, generation: int
    ) -> None:
        self.tell([Finish(segment, key, generation, outcome)], owner)

    def tell(self, finishes: list[Finish], owner: str) -> None:
        answers = self.store.finish(FRONTIER, finishes, owner=owner, now=self.now)
        assert answers == self.model.finish(finishes, owner)

    @precondition(lambda self: self.leases)
    @rule(data=strategies.data(), owner=owners)
    def give_back(self, data: strategies.DataObject, owner: str) -> None:
        number = data.draw(strategies.sampled_from(self.leases)).generation
        if self.model.leases.get(number, ("", 0))[0] == owner:
            given = self.store.give_back(FRONTIER, number, owner=owner, now=self.now)
            assert given == self.model.give_back(number)
        else:
            with pytest.raises(WrongSeedLease):
                self.store.give_back(FRONTIER, number, owner=owner, now=self.now)

    @precondition(lambda self: self.leases)
    @rule(data=strategies.data(), owner=owners)
    def extend(self, data: strategies.DataObject, owner: str) -> None:
        number = data.draw(strategies.sampled_from(self.leases)).generation
        holder, deadline = self.model.leases.get(number, ("", 0))
        if holder == owner:
            deadline = max(deadline, self.now + 30_000)
            self.model.leases[number] = owner, deadline
            told = self.store.extend(FRONTIER, number, owner=owner, seconds=30, now=self.now)
            assert told == deadline
        else:
            with pytest.raises(WrongSeedLease):
                self.store.extend(FRONTIER, number, owner=owner, seconds=30, now=self.now)

    @rule(seconds=strategies.sampled_from([0, 1, 25, 70]))
    def wait(self, seconds: int) -> None:
        self.now += seconds * 1000
        assert self.store.expire(now=self.now) == self.model.expire(self.now)

    @rule(segment=segments, key=keys)
    def reopen(self, segment: int, key: str) -> None:
        one = self.entry(segment, key)
        if one is not None and one.state in FINAL:
            self.model.reopen(one)
            self.store.reopen(FRONTIER, segment, key, now=self.now)
        else:
            with pytest.raises(UnknownSeed if one is None else SeedNotFinal):
                self.store.reopen(FRONTIER, segment, key, now=self.now)

    @rule(segment=segments, key=keys)
    def forget(self, segment: int, key: str) -> None:
        one = self.entry(segment, key)
        if one is not None and one.state != State.RUNNING:
            self.model.forget(one)
            self.store.forget(FRONTIER, segment, key, now=self.now)
        else:
            with pytest.raises(UnknownSeed if one is None else SeedInUse):
                self.store.forget(FRONTIER, segment, key, now=self.now)

    @rule(source=segments, other=segments)
    def reopen_failed(self, source: int, other: int) -> None:
        if source in self.model.books:
            told = reopen_failed(self.store, source, other, now=self.now)
            assert told == self.model.reopen_failed(source, other, self.now)

    @rule(batch=strategies.lists(knowns, min_size=1, max_size=6))
    def restore(self, batch: list[Known]) -> None:
        answers = self.store.restore(FRONTIER, batch, now=self.now)
        told = [(one.new, one.since, one.state) for one in answers]
        assert told == self.model.restore(batch)

    @rule(regroup=strategies.sampled_from(REGROUPS), limit=strategies.integers(1, 4))
    def move(self, regroup: Regroup, limit: int) -> None:
        if any(one.state == State.RUNNING for one in self.model.entries.values()):
            return
        beside = FRONTIER | 1 << 31
        self.model.move(regroup)
        for source, target, by in ((FRONTIER, beside, regroup), (beside, FRONTIER, same)):
            while found := self.store.segments(source):
                after: bytes | None = b""
                while after is not None:
                    after = self.store.move(
                        source, found[0].segment, target, by, after=after, limit=limit, now=self.now
                    ).after

    @rule()
    def read_in_pages(self) -> None:
        for segment in self.model.books:
            page = self.store.read(FRONTIER, segment, limit=3)
            rows = page.seeds
            while page.after is not None:
                page = self.store.read(FRONTIER, segment, after=page.after, limit=3)
                rows += page.seeds
            mine = [key for place, key in self.model.entries if place == segment]
            assert [one.key for one in rows] == sorted(mine, key=key_hash)
            assert rows == [self.store.lookup(FRONTIER, segment, one.key) for one in rows]

    @rule(segment=segments)
    def drop(self, segment: int) -> None:
        if segment in self.model.books:
            books = self.model.books_of(segment)
            self.model.drop(segment)
            assert self.store.drop_segment(FRONTIER, segment, leased_too=True) == books

    @rule()
    def tend(self) -> None:
        self.store.tend()

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = type(self).make(self.folder)
        self.settle()

    @invariant()
    def books_are_the_same(self) -> None:
        found = {one.segment: one.books for one in self.store.segments(FRONTIER)}
        assert found == {segment: self.model.books_of(segment) for segment in self.model.books}
        assert all(one.balance() for one in found.values())

    @invariant()
    def what_waits_is_the_same(self) -> None:
        assert self.store.next_due(FRONTIER, now=self.now) == self.model.next_due(self.now)

    @invariant()
    def seeds_are_the_same(self) -> None:
        for segment in self.model.books:
            found = {one.key: one for one in self.store.export(FRONTIER, segment)}
            mine = {
                key: one for (place, key), one in self.model.entries.items() if place == segment
            }
            assert found.keys() == mine.keys()
            for key, known in found.items():
                one = mine[key]
                assert (known.state, known.retry, known.due) == (one.state, one.retry, one.due)
                assert (known.added_at, known.generation) == (one.added_at, one.generation)
                holder = self.model.leases[one.generation] if known.owner else (None, None)
                assert (known.owner, known.deadline) == holder
                assert (known.state == State.RUNNING) == (known.owner is not None)


def search(make: Callable[[Path], SeedStore], histories: int) -> None:
    """Let hypothesis look for a history in which they differ."""
    machine = type("StoreHistories", (Histories,), {"make": staticmethod(make)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow("25 s")
@pytest.mark.covers("S3.5", "S3.6", "S3.7", "S3.12")
@pytest.mark.timeout(600 + HISTORIES)
def test_rocksdb_answers_like_the_model() -> None:
    search(open_rocks, HISTORIES)


@pytest.mark.slow("75 s")
@pytest.mark.services
@pytest.mark.timeout(600 + HISTORIES)
def test_postgresql_answers_like_the_model(postgres_url: str) -> None:
    opened: list[Path] = []

    def make(folder: Path) -> SeedStore:
        # A folder stands for a history: its first store begins with nothing.
        if folder not in opened:
            if opened:
                check_queue(postgres_url)
            opened.append(folder)
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                connection.execute("DROP SCHEMA IF EXISTS crawlyard_seeds CASCADE")
        return PostgresStore(postgres_url)

    search(make, HISTORIES // 10)
