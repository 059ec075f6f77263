"""What only MongoDB has: TTL and other indexes, programs of other make beside ours."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from bson.int64 import Int64
from pymongo import MongoClient, ReturnDocument
from pymongo.collection import Collection

from apps.requeststore.engine.flags import EXPIRED, NEW, TAKEN
from apps.requeststore.stores.base import QueueEntry
from apps.requeststore.stores.mongo import MongoNode
from tests.plugins.mongodb_server import MongoServer, lend_mongodb
from tests.requeststore.queue_fixtures import wait_until
from tests.requeststore.stores.calls import (
    CUTOFF,
    DEADLINE,
    NOW,
    SHARD,
    codes,
    finish,
    flags,
    give_back,
    new,
    one,
    page_ids,
    reopen,
    store,
    story,
    take,
)
from tests.requeststore.stores.mongo_fixtures import (
    Document,
    Listener,
    client,
    found,
    listener,
    node,
)

__all__ = ["client", "found", "listener", "node"]


# --- documents and indexes ------------------------------------------------------------------


@pytest.mark.covers("S4.1", "S4.2", "S4.3", "S4.4", "S4.5", "S4.6", "S4.17")
def test_a_document_has_the_five_fields_of_the_patent(
    node: MongoNode, found: Collection[Document]
) -> None:
    node.insert(SHARD, [new(2**62, NOW + 7, b"\0\xff"), new(5, NOW)], by="web", now=NOW)
    document = found.find_one({"_id": 2**62})
    assert document is not None
    assert document["biz"] == "news"
    # A date: a number would never expire.
    assert document["ts"] == datetime.fromtimestamp((NOW + 7) / 1000, UTC)
    assert (document["data"], document["flag"]) == (b"\0\xff", 0)
    # Also a small id is a long, and the data is no text.
    kinds = {"_id": {"$type": "long"}, "ts": {"$type": "date"}, "data": {"$type": "binData"}}
    assert found.count_documents(kinds) == 2


@pytest.mark.covers("S4.4", "S4.16", "S4.17")
def test_the_index_on_ts_deletes_as_long_after_as_the_biz_says(
    node: MongoNode, found: Collection[Document], listener: Listener
) -> None:
    node.ensure(SHARD, delete_after_seconds=100)
    assert _ttl(found) == 100
    listener.said.clear()
    node.ensure(SHARD, delete_after_seconds=100)
    assert listener.said == []
    node.ensure(SHARD, delete_after_seconds=200)
    assert _ttl(found) == 200
    node.ensure(SHARD, delete_after_seconds=2**40)
    assert _ttl(found) == 2**31 - 1


def _ttl(found: Collection[Document]) -> int | None:
    (index,) = [each for each in found.index_information().values() if each["key"] == [("ts", 1)]]
    seconds: int | None = index.get("expireAfterSeconds")
    return seconds


def test_an_index_of_other_make_learns_to_delete(
    node: MongoNode, found: Collection[Document]
) -> None:
    found.create_index("ts", name="made_by_hand")
    node.ensure(SHARD, delete_after_seconds=100)
    assert _ttl(found) == 100
    assert "made_by_hand" in found.index_information()


@pytest.mark.slow("2 s")
@pytest.mark.covers("S4.16")
def test_the_server_deletes_what_is_old_by_itself() -> None:
    with lend_mongodb(sweep_seconds=0.2) as server:
        node = MongoNode(server.url)
        with contextlib.closing(node), server.connect() as client:
            now = int(datetime.now(UTC).timestamp() * 1000)
            node.ensure(SHARD, delete_after_seconds=3600)
            old, young = new(1, now - 3_700_000), new(2, now - 3_000_000)
            node.insert(SHARD, [old, young], by="web", now=now)
            wait_until(lambda: node.find(SHARD, [1]) == [None], "the server has deleted it")
            assert one(node, 2).flag == NEW
            assert client[SHARD.database][SHARD.collection].count_documents({}) == 1


def test_lost_indexes_are_made_again(node: MongoNode, found: Collection[Document]) -> None:
    store(node, 1)
    found.drop_indexes()
    assert page_ids(node) == [1]
    assert _ttl(found) == 8 * 86_400
    found.drop_indexes()
    another = MongoNode(node._client._url)
    assert dict(another.count(SHARD).by_flag) == {NEW: 1}
    assert all(each["key"] != [("ts", 1)] for each in found.index_information().values())
    another.close()


def _plans(plan: object) -> Iterator[str]:
    if isinstance(plan, dict):
        if "stage" in plan:
            yield str(plan["stage"])
        for each in plan.values():
            yield from _plans(each)
    elif isinstance(plan, list):
        for each in plan:
            yield from _plans(each)


def _asked(command: Document) -> Iterator[Document]:
    """What a command looks for, each as a find that the server can explain."""
    name = next(iter(command))
    wanted: list[Document] = []
    if name in ("find", "distinct"):
        wanted = [{**command, "filter": command.get("filter", command.get("query"))}]
    elif name == "findAndModify":
        wanted = [{"filter": command["query"], "hint": command["hint"]}]
    elif name in ("update", "delete"):
        wanted = [{"filter": one_["q"], "hint": one_["hint"]} for one_ in command[f"{name}s"]]
    elif name == "aggregate":
        wanted = [{"filter": command["pipeline"][0]["$match"], "hint": command["hint"]}]
    for one_ in wanted:
        kept: Document = {
            key: one_[key] for key in ("filter", "sort", "hint", "limit") if key in one_
        }
        yield {"find": command[name], **kept}


@pytest.mark.covers("S4.20")
def test_no_operation_looks_through_the_collection(
    node: MongoNode, listener: Listener, client: MongoClient[Document]
) -> None:
    store(node, *range(1, 9))
    listener.said.clear()
    node.queued(SHARD, [1, 2], by="web", now=NOW)
    take(node, 1)
    take(node, 2, 3, 4)
    finish(node, 1)
    finish(node, 1)
    give_back(node, 2)
    reopen(node, 1)
    node.find(SHARD, [1, 2])
    page_ids(node)
    page_ids(node, flag=NEW, since=NOW, until=NOW + 5)
    node.orphans(SHARD, before=NOW + 9, cutoff=CUTOFF, limit=5)
    node.forgotten(SHARD, before=NOW + 9, cutoff=CUTOFF, limit=5)
    node.overdue(SHARD, now=DEADLINE, cutoff=CUTOFF, limit=5, by="sweep")
    node.count(SHARD)
    node.oldest(SHARD, flag=NEW)
    node.expire(SHARD, cutoff=NOW + 5, limit=5, by="sweep", now=NOW)
    node.delete(SHARD, before=NOW + 5, limit=5)
    node.start_move(SHARD, [6], now=NOW)
    node.undo_move(SHARD, [6])
    node.end_move(SHARD, [6])
    asked = [each for command in listener.said for each in _asked(command)]
    assert {next(iter(command)) for command in listener.said} == {
        "find",
        "findAndModify",
        "update",
        "delete",
        "distinct",
        "aggregate",
    }
    assert len(asked) > 30
    for each in asked:
        plan = client[SHARD.database].command("explain", each, verbosity="queryPlanner")
        stages = set(_plans(plan["queryPlanner"]["winningPlan"]))
        assert stages & {"IXSCAN", "IDHACK", "EXPRESS_IXSCAN"}, each
        assert "COLLSCAN" not in stages, each


@pytest.mark.covers("S4.15")
def test_a_write_counts_when_most_members_have_it_on_disk(
    mongodb_server: MongoServer, listener: Listener
) -> None:
    node = MongoNode(
        f"{mongodb_server.url}&w=0&journal=false&readPreference=secondary&retryWrites=false",
        listeners=[listener],
    )
    store(node, 1)
    take(node, 1)
    finish(node, 1)
    node.delete(SHARD, before=NOW + 9, limit=5)
    node.drop(SHARD)
    node.close()
    writes = [
        command
        for command in listener.said
        if next(iter(command)) in ("insert", "update", "delete", "findAndModify")
    ]
    assert len(writes) == 4
    for command in writes:
        assert command["writeConcern"]["w"] == "majority"
        assert command["writeConcern"]["j"] is True
    assert all("txnNumber" in command for command in writes[:3])


# --- beside programs of other make ----------------------------------------------------------


@pytest.mark.covers("S4.20")
def test_a_fetcher_in_the_way_of_the_patent_and_ours_share_a_shard(
    node: MongoNode, found: Collection[Document]
) -> None:
    store(node, 1, 2)

    def theirs(number: int) -> Document | None:
        moment = datetime.fromtimestamp((NOW + number) / 1000, UTC)
        return found.find_one_and_update(
            {"_id": number, "biz": "news", "ts": moment, "flag": 0},
            {"$set": {"flag": 1}},
            return_document=ReturnDocument.AFTER,
        )

    document = theirs(1)
    assert document is not None
    assert document["data"] == b"d1"
    assert codes(take(node, 1, 2)) == ["done", "taken"]
    assert theirs(1) is None
    assert theirs(2) is None
    assert finish(node, 2) == ["done"]
    assert flags(node) == {1: 2}


@pytest.mark.covers("S4.1", "S4.23")
def test_what_another_producer_stores_is_served(
    node: MongoNode, found: Collection[Document]
) -> None:
    node.ensure(SHARD, delete_after_seconds=60)
    moment = datetime.fromtimestamp(NOW / 1000, UTC)
    theirs = {"biz": "news", "ts": moment, "flag": 0}
    found.insert_many(
        [
            {"_id": 5, **theirs, "data": b"bytes"},
            {"_id": Int64(6), **theirs, "data": "text"},
            {"_id": 7, **theirs},
            {
                "_id": 8,
                **theirs,
                "steps": "no",
                "tries": math.nan,
                "owner": 3,
                "data": 1,
                "token": 2,
            },
        ]
    )
    entries = node.orphans(SHARD, before=NOW, cutoff=CUTOFF, limit=10)
    assert entries == [QueueEntry(each, "news", NOW) for each in (5, 6, 7, 8)]
    node.queued(SHARD, [5, 6, 7], by="sweep", now=NOW, again=True)
    assert [entry.id for entry in node.orphans(SHARD, before=NOW, cutoff=0, limit=10)] == [8]
    assert (one(node, 8).tries, one(node, 8).steps, one(node, 8).owner) == (0, [], "")
    taken = take(node, 5, 6, 7, 8, ts=NOW)
    assert [each.request and each.request.data for each in taken] == [b"bytes", b"text", b"", b""]
    assert [each.request and each.request.tries for each in taken] == [1, 1, 1, 1]
    assert finish(node, 5, 6) == ["done", "done"]
    assert give_back(node, 7, 8) == ["done", "done"]
    assert codes(take(node, 8, ts=NOW)) == ["taken"]
    assert story(node, 8) == [("taken", "w1"), ("returned", "w1"), ("taken", "w1")]
    assert page_ids(node) == [8, 7, 6, 5]
    found.update_one({"_id": 8}, {"$set": {"steps": 5, "deadline": "soon"}})
    assert node.expire(SHARD, cutoff=NOW, limit=9, by="sweep", now=NOW) == 2


def test_documents_that_are_no_requests_are_in_nobodys_way(
    node: MongoNode, found: Collection[Document]
) -> None:
    store(node, 3)
    moment = datetime.fromtimestamp((NOW + 1) / 1000, UTC)
    late = {"ts": moment, "flag": TAKEN, "deadline": 1, "owner": [], "tries": "x"}
    found.insert_many(
        [
            {"biz": "news", "ts": moment, "flag": 0},
            {"_id": "text", "biz": "news", "ts": moment, "flag": 1},
            {"_id": 1.5, "biz": "news", **late},
            {"_id": 1, **late},
            {"_id": 2, "biz": 7, "ts": moment, "flag": 0},
            {"_id": 4},
        ]
    )
    assert page_ids(node) == [3]
    assert [entry.id for entry in node.orphans(SHARD, before=NOW + 9, cutoff=0, limit=9)] == [3]
    assert node.forgotten(SHARD, before=NOW + 9, cutoff=0, limit=9) == []
    assert node.overdue(SHARD, now=DEADLINE, cutoff=0, limit=9, by="sweep") == []
    assert codes(take(node, 1, 2, 3, 4)) == ["unknown", "unknown", "taken", "unknown"]
    assert finish(node, 3) == ["done"]
    assert node.expire(SHARD, cutoff=NOW + 9, limit=9, by="sweep", now=NOW) == 0
    assert node.delete(SHARD, before=NOW + 9, limit=9) == 1
    assert [one_ and one_.id for one_ in node.find(SHARD, [4, 1])] == [4, 1]
    assert node.start_move(SHARD, [1], now=NOW) == [None]
    assert found.count_documents({}) == 6


def test_names_with_a_dollar_are_only_names(node: MongoNode) -> None:
    store(node, 1)
    take(node, 1, owner="$data")
    assert finish(node, 1, owner="$data") == ["done"]
    assert one(node, 1).owner == "$data"
    assert story(node, 1)[-1] == ("finished", "$data")


@pytest.mark.covers("S4.17")
def test_what_has_expired_and_is_not_deleted_yet_is_no_work(
    node: MongoNode, found: Collection[Document]
) -> None:
    store(node, 1, ts=CUTOFF)
    assert codes(take(node, 1, ts=CUTOFF)) == ["expired"]
    assert node.orphans(SHARD, before=NOW, cutoff=CUTOFF, limit=5) == []
    assert node.expire(SHARD, cutoff=CUTOFF, limit=5, by="sweep", now=NOW) == 1
    assert found.count_documents({"flag": EXPIRED}) == 1


@pytest.mark.slow("1 s")
@pytest.mark.covers("S4.20")
def test_of_many_who_take_one_gets_it(mongodb_server: MongoServer, node: MongoNode) -> None:
    ids = list(range(1, 41))
    store(node, *ids)
    got: Counter[int] = Counter()
    lock = threading.Lock()
    nodes = [MongoNode(mongodb_server.url) for _ in range(4)]

    def work(mine: MongoNode, number: int) -> None:
        # Some by one findAndModify each, some by batches.
        size = 1 if number == 0 else 10
        for start in range(0, len(ids), size):
            for answer in take(mine, *ids[start : start + size], owner=f"w{number}"):
                if answer.request is not None:
                    assert answer.request.owner == f"w{number}"
                    with lock:
                        got[answer.request.id] += 1

    threads = [
        threading.Thread(target=work, args=(each, number)) for number, each in enumerate(nodes)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for each in nodes:
        each.close()
    assert got == Counter(ids)
    assert flags(node) == {TAKEN: 40}
