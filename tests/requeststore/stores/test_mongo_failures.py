"""MongoDB that fails over, dies, refuses; and what it tells of itself."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import DocumentTooLarge, OperationFailure
from pymongo.hello import Hello
from pymongo.server_description import ServerDescription

from apps.requeststore.engine.errors import BadSetting, RequestStoreUnavailable, TooLarge
from apps.requeststore.engine.flags import NEW, TAKEN
from apps.requeststore.engine.limits import MAX_DATA_BYTES, MAX_RESULT_BYTES
from apps.requeststore.stores.base import Finish, Shard
from apps.requeststore.stores.mongo import MongoNode
from apps.requeststore.stores.mongo.client import MongoConnection
from apps.requeststore.stores.mongo.health import members_found
from tests.plugins.mongodb_server import MongoServer, lend_mongodb
from tests.requeststore.stores.calls import (
    DEADLINE,
    NOW,
    PREFIX,
    SHARD,
    codes,
    finish,
    flags,
    new,
    one,
    store,
    take,
)
from tests.requeststore.stores.mongo_fixtures import Document, client, listener, node

__all__ = ["client", "listener", "node"]


# --- servers that fail ----------------------------------------------------------------------


@pytest.fixture
def failing(
    mongodb_server: MongoServer, client: MongoClient[Document]
) -> Iterator[Callable[..., None]]:
    """Lets the next commands of a kind fail as those of a member that steps down, or dies."""

    def fail(*commands: str, **how: Any) -> None:
        point = {"configureFailPoint": "failCommand", "mode": {"times": 1}}
        try:
            client.admin.command(point | {"data": {"failCommands": list(commands), **how}})
        except OperationFailure as error:
            assert mongodb_server.is_real
            pytest.skip(f"this server has no test commands: {error.code}")

    yield fail
    with contextlib.suppress(OperationFailure):
        client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})


@pytest.fixture
def patient(mongodb_server: MongoServer) -> Iterator[MongoNode]:
    """Asks the members often who they are."""
    options = "serverMonitoringMode=poll&heartbeatFrequencyMS=500"
    made = MongoNode(f"{mongodb_server.url}&{options}")
    yield made
    made.close()
    mongodb_server.forget(PREFIX)


@pytest.mark.fault
@pytest.mark.covers("S4.15")
@pytest.mark.parametrize(
    "how",
    [{"closeConnection": True}, {"errorCode": 10107, "errorLabels": ["RetryableWriteError"]}],
    ids=["connection", "not primary"],
)
def test_a_fail_over_in_the_midst_goes_unnoticed(
    patient: MongoNode, failing: Callable[..., None], how: Document
) -> None:
    failing("insert", **how)
    assert store(patient, 1, 2, 3, 4) == [True] * 4
    failing("update", **how)
    patient.queued(SHARD, [1, 2, 3, 4], by="web", now=NOW)
    failing("update", **how)
    assert codes(take(patient, 1, 2)) == ["taken", "taken"]
    failing("findAndModify", **how)
    assert codes(take(patient, 3)) == ["taken"]
    failing("update", **how)
    assert finish(patient, 1, 2) == ["done", "done"]
    failing("find", **how)
    assert one(patient, 1).tries == 1
    failing("delete", **how)
    assert patient.delete(SHARD, before=NOW + 9, limit=9) == 2
    assert flags(patient) == {NEW: 1, TAKEN: 1}


@pytest.mark.fault
def test_an_answer_that_is_lost_hands_out_nothing_twice(
    patient: MongoNode, client: MongoClient[Document], failing: Callable[..., None]
) -> None:
    store(patient, 1, 2)
    failing("update", writeConcernError={"code": 91, "errmsg": "shutting down"})
    with contextlib.suppress(RequestStoreUnavailable):
        take(patient, 1, 2)
    assert codes(take(patient, 1, 2, owner="w2")) == ["busy", "busy"]
    assert codes(take(patient, 1, 2, owner="w2", now=DEADLINE, deadline=DEADLINE + 1)) == [
        "taken",
        "taken",
    ]


@pytest.mark.fault
@pytest.mark.covers("S4.15")
def test_a_server_that_is_killed_is_told_and_met_again() -> None:
    with lend_mongodb() as server:
        node = MongoNode(server.url, server_seconds=0.3)
        store(node, 1)
        server.stop()
        for call in (
            lambda: store(node, 2),
            lambda: take(node, 1),
            lambda: finish(node, 1),
            lambda: node.count(SHARD),
            lambda: node.shards("crawlyard"),
            node.health,
        ):
            with pytest.raises(RequestStoreUnavailable, match="MongoDB at mongodb://"):
                call()
        server.start()
        assert store(node, 1, 2) == [False, True]
        assert codes(take(node, 1)) == ["taken"]
        assert flags(node) == {TAKEN: 1, NEW: 1}
        node.close()


def test_no_text_shows_a_password() -> None:
    secret = "pa%40ssw0rd"
    node = MongoNode(
        f"mongodb://ops:{secret}@127.0.0.1:1,127.0.0.1:2/?replicaSet=rs0", server_seconds=0.1
    )
    with pytest.raises(RequestStoreUnavailable) as raised:
        node.find(SHARD, [1])
    assert "mongodb://ops:****@127.0.0.1:1,127.0.0.1:2/?replicaSet=rs0" in str(raised.value)
    assert "Topology" not in str(raised.value)
    node.close()
    for url in (
        f"mongodb://ops:{secret}@/",
        f"mongodb://ops:{secret}@host:99999/",
        f"mongodb://ops:pa@ss{secret}@host/",
        f"mongodb://ops:{secret}@host/?w=5&tlsInsecure=perhaps",
        "mongodb://",
    ):
        with pytest.raises(BadSetting) as refused:
            MongoNode(url)
        assert "w0rd" not in str(refused.value)
        assert "MongoDB: " in str(refused.value)


@pytest.mark.slow("3 s")
@pytest.mark.covers("S4.5")
def test_the_largest_data_leaves_room_for_its_story(node: MongoNode) -> None:
    node.ensure(SHARD, delete_after_seconds=60)
    large = new(1, NOW, b"x" * MAX_DATA_BYTES)
    assert node.insert(SHARD, [large], by="web", now=NOW) == [True]
    (taken,) = take(node, 1, ts=NOW)
    assert taken.request is not None
    assert len(taken.request.data) == MAX_DATA_BYTES
    text, result = "t" * 500, b"r" * MAX_RESULT_BYTES
    ends = [Finish(1, 1, 1, result, text)]
    assert node.finish(SHARD, ends, owner="w1", now=NOW) == ["done"]


def test_a_document_that_is_too_large_is_told_as_such() -> None:
    with pytest.raises(TooLarge), MongoConnection("mongodb://127.0.0.1:1").errors():
        raise DocumentTooLarge("BSON document too large (17825792 bytes)")


def _in_a_child(node: MongoNode, told: Any) -> None:
    told.send(codes(take(node, 1)))
    node.close()


@pytest.mark.filterwarnings("ignore:MongoClient opened before fork:UserWarning")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_opens_connections_of_its_own(node: MongoNode) -> None:
    store(node, 1)
    told, tell = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_in_a_child, args=(node, tell))
    process.start()
    assert told.poll(30)
    assert told.recv() == ["taken"]
    process.join(30)
    assert process.exitcode == 0
    assert one(node, 1).flag == TAKEN


# --- how it is ------------------------------------------------------------------------------


@pytest.mark.covers("S4.26")
def test_it_tells_of_itself_what_the_server_knows(
    node: MongoNode, mongodb_server: MongoServer
) -> None:
    store(node, 1)
    health = node.health()
    assert health.kind == "mongodb"
    assert int(health.version.partition(".")[0]) >= 4
    assert health.connections
    assert health.memory_bytes
    assert [member.rpartition(": ")[2] for member in health.members].count("primary") == 1
    assert health.slow == []


@pytest.mark.covers("S4.26")
def test_what_it_may_not_ask_stays_unknown(node: MongoNode, failing: Callable[..., None]) -> None:
    commands = ("serverStatus", "listDatabases", "replSetGetStatus")
    for command in commands:
        failing(command, errorCode=13)
        health = node.health()
        assert (health.connections is None) == (command == "serverStatus")
        assert health.members
    failing("aggregate", errorCode=13)
    assert node.health().slow == []


def test_slow_operations_are_told_without_their_data(
    node: MongoNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(node, 1)
    running = [
        {"op": "query", "ns": "crawlyard_p1_a.requests_000", "secs_running": 7,
         "microsecs_running": 7_250_000, "planSummary": 'COLLSCAN { data: "secret" }'},
        {"op": "getmore", "ns": "local.oplog.rs", "secs_running": 9},
    ]  # fmt: skip
    admin = node._client.connected().admin
    monkeypatch.setattr(type(admin), "aggregate", lambda *_a, **_k: running)
    (slow,) = node.health().slow
    assert (slow.seconds, slow.text) == (7.2, "query crawlyard_p1_a.requests_000 COLLSCAN")


def test_other_collections_are_no_shards(node: MongoNode, client: MongoClient[Document]) -> None:
    store(node, 1)
    client[SHARD.database]["Other-Thing"].insert_one({"_id": 1})
    assert node.shards(PREFIX) == [SHARD]
    assert node.shards(f"{SHARD.database}x") == []
    assert Shard("x", "y") not in node.shards("")


@pytest.mark.parametrize(
    ("hello", "shown"),
    [
        ({"msg": "isdbgrid"}, "host:27017"),
        ({"isWritablePrimary": True}, "host:27017"),
        ({"setName": "rs", "isWritablePrimary": True}, "host:27017: primary"),
        ({"setName": "rs", "secondary": True}, "host:27017: secondary"),
    ],
)
def test_only_a_member_of_a_replica_set_has_a_role(hello: dict[str, Any], shown: str) -> None:
    server = ServerDescription(("host", 27017), Hello({"ok": 1, **hello}))
    assert members_found([server]) == [shown]
