"""Random histories: every store answers as the model in plain Python does."""

from __future__ import annotations

import os
from random import Random

import pytest

from apps.requeststore.stores.base import Finish, GiveBack, NewRequest, QueueEntry, StorageNode
from tests.requeststore.stores.calls import NOW, SHARD
from tests.requeststore.stores.conftest import Opened
from tests.requeststore.stores.model import Model, seen

# So many histories of each store, of 60 calls each.
HISTORIES = int(os.environ.get("CRAWLYARD_TEST_HISTORIES", "100")) // 5
CALLS = 60
IDS = 12
OWNERS = ("w1", "w2")


class History:
    """Calls that a seed chooses go to the store and to the model; both must say the same."""

    def __init__(self, node: StorageNode, seed: int) -> None:
        self.node = node
        self.model = Model()
        self.random = Random(seed)
        self.now = NOW
        node.drop(SHARD)

    def run(self) -> None:
        calls = [
            self.insert,
            self.insert,
            self.queued,
            self.take,
            self.take,
            self.take,
            self.end,
            self.end,
            self.sweep,
            self.forget,
            self.move,
            self.reopen,
        ]
        for _ in range(CALLS):
            self.now += self.random.choice((0, 1, 7, 40))
            self.random.choice(calls)()
            self.look()

    def ids(self) -> list[int]:
        return [self.random.randrange(IDS) for _ in range(self.random.randint(1, 6))]

    def moment(self) -> int:
        return self.now - self.random.choice((0, 5, 30, 120, 500))

    def insert(self) -> None:
        some = [(id_, self.moment()) for id_ in self.ids()]
        requests = [NewRequest(id_, "news", ts, b"d%d" % id_) for id_, ts in some]
        told = self.node.insert(SHARD, requests, by="web", now=self.now)
        assert told == self.model.insert(some)

    def queued(self) -> None:
        ids, again = self.ids(), self.random.random() < 0.3
        self.node.queued(SHARD, ids, by="web", now=self.now, again=again)
        self.model.queued(ids, self.now, again)

    def take(self) -> None:
        entries = []
        for id_ in self.ids():
            row = self.model.rows.get(id_)
            ts = row.ts if row and self.random.random() < 0.9 else self.moment()
            biz = "news" if self.random.random() < 0.95 else "other"
            entries.append(QueueEntry(id_, biz, ts))
        owner = self.random.choice(OWNERS)
        deadline, cutoff = self.now + self.random.choice((1, 20, 60)), self.now - 300
        takes = self.node.take(
            SHARD, entries, owner=owner, now=self.now, deadline=deadline, cutoff=cutoff
        )
        told = [str(each.code) for each in takes]
        assert told == self.model.take(entries, owner, self.now, deadline, cutoff)
        for entry, each in zip(entries, takes, strict=True):
            if each.request is not None:
                assert seen(each.request) == self.model.rows[entry.id].as_seen()

    def end(self) -> None:
        owner, flag = self.random.choice(OWNERS), self.random.choice((0, 1, 1, 2))
        pairs = [
            (id_, max(0, (row.tries if row else 1) - self.random.choice((0, 0, 0, 1))))
            for id_ in self.ids()
            for row in [self.model.rows.get(id_)]
        ]
        if flag:
            ends = [Finish(id_, tries, flag) for id_, tries in pairs]
            told = self.node.finish(SHARD, ends, owner=owner, now=self.now)
        else:
            back = [GiveBack(id_, tries) for id_, tries in pairs]
            told = self.node.give_back(SHARD, back, owner=owner, now=self.now)
        expected = [self.model.end(id_, tries, flag, owner, self.now) for id_, tries in pairs]
        assert [str(code) for code in told] == expected

    def sweep(self) -> None:
        cutoff, before = self.now - 300, self.now - self.random.choice((0, 10))
        orphans = self.node.orphans(SHARD, before=before, cutoff=cutoff, limit=99)
        assert {entry.id for entry in orphans} == self.model.orphans(before, cutoff)
        forgotten = self.node.forgotten(SHARD, before=before, cutoff=cutoff, limit=99)
        assert {entry.id for entry in forgotten} == self.model.forgotten(before, cutoff)
        overdue = self.node.overdue(SHARD, now=self.now, cutoff=cutoff, limit=99, by="sweep")
        assert {each.id for each in overdue} == self.model.overdue(self.now, cutoff)

    def forget(self) -> None:
        cutoff = self.now - 300
        told = self.node.expire(SHARD, cutoff=cutoff, limit=99, by="sweep", now=self.now)
        assert told == self.model.expire(cutoff, self.now)
        before = self.now - 400
        assert self.node.delete(SHARD, before=before, limit=99) == self.model.delete(before)

    def move(self) -> None:
        ids, choice = self.ids(), self.random.random()
        if choice < 0.5:
            started = self.node.start_move(SHARD, ids, now=self.now)
            assert [one and one.flag for one in started] == self.model.start_move(ids)
        elif choice < 0.8:
            assert self.node.undo_move(SHARD, ids) == self.model.undo_move(ids)
        else:
            assert self.node.end_move(SHARD, ids) == self.model.end_move(ids)

    def reopen(self) -> None:
        ids, flags, cutoff = self.ids(), self.random.choice(([1], [2], [1, 2])), self.now - 300
        told = self.node.reopen(SHARD, ids, flags=flags, by="ops", now=self.now, cutoff=cutoff)
        assert told == self.model.reopen(ids, flags, cutoff)

    def look(self) -> None:
        found = self.node.find(SHARD, list(range(IDS)))
        assert [one and seen(one) for one in found] == [
            row and row.as_seen() for row in map(self.model.rows.get, range(IDS))
        ]
        assert dict(self.node.count(SHARD).by_flag) == self.model.counts()
        flag = self.random.choice((None, 0, 1, -1))
        since, until = self.now - self.random.choice((0, 50, 600)), self.now + 1
        page = self.node.page(SHARD, biz="news", flag=flag, since=since, until=until)
        assert [one.id for one in page] == self.model.page(flag, since, until)
        assert self.node.oldest(SHARD, flag=0) == self.model.oldest(0)


@pytest.mark.slow("10 s")
@pytest.mark.timeout(300)
def test_random_histories(open_node: Opened, request: pytest.FixtureRequest) -> None:
    node = open_node()
    # What stands in for MongoDB in tests is slow.
    part = 10 if "mongo" in request.node.name else 1
    for seed in range(max(2, HISTORIES // part)):
        try:
            History(node, seed).run()
        except AssertionError as error:
            raise AssertionError(f"in the history of seed {seed}") from error
