"""Servers that targets deliver to, each with its own way to read what has arrived."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pika
import psycopg
import pyarrow.parquet
import pytest

from apps.datasets.engine.targets.factory import (
    Credentials,
    Options,
    Settings,
    TargetContext,
    open_target,
)
from apps.projects.engine.signatures import check_standard
from tests.alerts.servers import Asked, Reply, serving
from yardkit.broker import Broker, connect
from yardkit.objects import ObjectStore, open_objects

# Where nothing listens.
NOWHERE = "127.0.0.1:1"
KEY = "whsec_" + "c2VjcmV0LXRoYXQtbm9ib2R5LWtub3dz"
LOCAL = ("127.0.0.0/8",)
DELIVERY = 3
Rows = list[dict[str, Any]]


@dataclass
class Peer:
    """A server with the settings of a delivery to it.

    ``read``: rows with ``_id`` and fields, or None while not all have arrived. ``repeats``: a
    repeated item is there twice, with the same identity.
    """

    settings: Settings
    context: TargetContext
    read: Callable[[], Rows]
    away: dict[str, Any] = field(default_factory=dict)
    repeats: bool = False

    def open(self, **changes: Any) -> Any:
        values = {name: getattr(self.settings, name) for name in self.settings.__struct_fields__}
        return open_target(Settings(**(values | changes)), self.context)


def settings_of(kind: str, url: str = "", **values: Any) -> Settings:
    options = Options(**values.pop("options", {}))
    credentials = Credentials(**values.pop("credentials", {}))
    return Settings(
        id=DELIVERY,
        project_id=5,
        kind=kind,
        url=url,
        options=options,
        credentials=credentials,
        **values,
    )


def context_of(tmp_path: Path, networks: Sequence[str] = LOCAL, broker: Any = None) -> Any:
    return TargetContext(
        records_url=f"sqlite:///{tmp_path}/records.sqlite3",
        folder=tmp_path / "records",
        broker=broker or (lambda: pytest.fail("no broker is needed")),
        networks=list(networks),
    )


def read_files(store: ObjectStore, ending: str) -> Rows:
    rows: Rows = []
    for info in sorted(store.list(""), key=lambda info: info.key):
        assert info.key.endswith(f".{ending}")
        content = store.get(info.key)
        if ending == "jsonl":
            rows += [json.loads(line) for line in content.splitlines()]
        elif ending == "csv":
            rows += list(csv.DictReader(io.StringIO(content.decode())))
        else:
            for row in pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist():
                identity = f"{row['_run']}-{row['_incarnation']}-{row['_seq']}"
                rows.append({"_id": identity, **json.loads(row["_item"])})
    return rows


def folder_peer(tmp_path: Path, file_format: str) -> Peer:
    settings = settings_of("folder", options={"format": file_format, "folder": "out"})
    (tmp_path / "file").write_text("")
    blocked = TargetContext(
        records_url="", folder=tmp_path / "file", broker=lambda: pytest.fail("unused"), networks=[]
    )
    folder = tmp_path / "records" / "p5" / "out"
    peer = Peer(
        settings,
        context_of(tmp_path),
        lambda: read_files(open_objects(f"file://{folder}"), file_format),
    )
    peer.away = {"context": blocked}
    return peer


def s3_peer(request: Any, tmp_path: Path) -> Peer:
    bucket = request.getfixturevalue("s3_bucket")
    return Peer(
        settings_of(
            "s3",
            bucket.url,
            options={
                "format": "parquet",
                "template": "{dataset}/run={run}/{batch}-{offset}.parquet",
            },
            credentials={"user": bucket.access_key, "password": bucket.secret_key},
        ),
        context_of(tmp_path),
        lambda: read_files(bucket.open(), "parquet"),
        away={"url": f"s3://crawlyard?endpoint=http://{NOWHERE}"},
    )


def table_peer(tmp_path: Path) -> Peer:
    def read() -> Rows:
        with contextlib.closing(sqlite3.connect(tmp_path / "records.sqlite3")) as file:
            file.row_factory = sqlite3.Row
            return [dict(row) for row in file.execute("SELECT * FROM records_p5_items")]

    return Peer(settings_of("table", options={"table": "items"}), context_of(tmp_path), read)


def postgresql_peer(request: Any, tmp_path: Path) -> Peer:
    whole = request.getfixturevalue("empty_database")
    known = psycopg.conninfo.conninfo_to_dict(whole)

    def read() -> Rows:
        with psycopg.connect(whole, row_factory=psycopg.rows.dict_row) as server:
            return server.execute('SELECT * FROM "items"').fetchall()

    return Peer(
        settings_of(
            "postgresql",
            f"postgresql://{known['host']}:{known.get('port', 5432)}/{known['dbname']}",
            options={"table": "items"},
            credentials={"user": known.get("user", ""), "password": known.get("password", "")},
        ),
        context_of(tmp_path),
        read,
        away={"url": f"postgresql://{NOWHERE}/none"},
    )


def mongodb_peer(request: Any, tmp_path: Path) -> Peer:
    from pymongo import MongoClient

    url = request.getfixturevalue("mongodb")
    database = request.getfixturevalue("mongodb_prefix")

    def read() -> Rows:
        with MongoClient[dict[str, Any]](url) as client:
            return list(client[database]["items"].find())

    return Peer(
        settings_of("mongodb", url, options={"collection": f"{database}.items"}),
        context_of(tmp_path),
        read,
        away={"url": f"mongodb://{NOWHERE}/"},
    )


def flat(body: bytes) -> dict[str, Any]:
    found = json.loads(body)
    return {"_id": found["id"], **found["item"]}


def kafka_peer(request: Any, tmp_path: Path) -> Peer:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    cluster = request.getfixturevalue("kafka_cluster")
    topic = cluster.make_topic("items")

    def read() -> Rows:
        settings = {"bootstrap.servers": cluster.servers, "group.id": uuid4().hex, "log_level": 0}
        consumer = Consumer(settings)
        with contextlib.closing(consumer):
            partitions = [TopicPartition(topic, n) for n in range(cluster.partitions(topic))]
            # Only what is there: a test also has to see that nothing else is.
            ends = [consumer.get_watermark_offsets(place, timeout=10)[1] for place in partitions]
            consumer.assign(
                [TopicPartition(topic, place.partition, OFFSET_BEGINNING) for place in partitions]
            )
            rows: Rows = []
            while len(rows) < sum(ends):
                for got in consumer.consume(sum(ends) - len(rows), timeout=5):
                    assert got.error() is None
                    value, key = got.value() or b"", got.key() or b""
                    rows.append(flat(value))
                    assert key.decode() == json.loads(value)["id"]
            return rows

    return Peer(
        settings_of("kafka", cluster.servers, options={"topic": topic}),
        context_of(tmp_path),
        read,
        away={"url": NOWHERE},
        repeats=True,
    )


def rabbitmq_peer(request: Any, tmp_path: Path) -> Peer:
    whole = request.getfixturevalue("rabbit_vhost")
    head, _, place = whole.rpartition("@")
    user, _, password = head.removeprefix("amqp://").partition(":")
    queue = f"items-{uuid4().hex}"
    taken: Rows = []

    def read() -> Rows:
        with contextlib.closing(pika.BlockingConnection(pika.URLParameters(whole))) as connection:
            channel = connection.channel()
            while True:
                method, properties, body = channel.basic_get(queue, auto_ack=True)
                if method is None:
                    return list(taken)
                taken.append(flat(body))
                assert properties.message_id == json.loads(body)["id"]
                assert properties.delivery_mode == 2

    return Peer(
        settings_of(
            "rabbitmq",
            f"amqp://{place}",
            options={"queue": queue},
            credentials={"user": user, "password": password},
        ),
        context_of(tmp_path),
        read,
        away={"url": f"amqp://{NOWHERE}/"},
        repeats=True,
    )


def own_broker_peer(request: Any, tmp_path: Path) -> Peer:
    broker: Broker = connect(request.getfixturevalue("sqlite_broker_url"), name="test")
    request.addfinalizer(broker.close)
    taken: Rows = []

    def read() -> Rows:
        with contextlib.closing(broker.subscribe("items.p5.out", prefetch=1000)) as subscription:
            while deliveries := subscription.take(1000, timeout=0.5):
                taken.extend(flat(delivery.body) for delivery in deliveries)
                subscription.ack(deliveries)
        return list(taken)

    return Peer(
        settings_of("rabbitmq", options={"queue": "out"}),
        context_of(tmp_path, broker=lambda: broker),
        read,
        repeats=True,
    )


class Receiver:
    """A receiver of webhooks by the Standard Webhooks specification: each ID once."""

    def __init__(self) -> None:
        self.rows: Rows = []
        self.calls = 0
        self._seen: set[str] = set()

    def answer(self, asked: Asked) -> Reply:
        self.calls += 1
        identity = asked.headers["webhook-id"]
        check_standard(
            KEY,
            asked.body,
            message_id=identity,
            timestamp=asked.headers["webhook-timestamp"],
            signatures=asked.headers["webhook-signature"],
            now=time.time(),
        )
        assert asked.json["type"] == "items"
        assert asked.json["dataset"] == "news"
        items = asked.json["items"]
        if any(item["item"].get("sku") == "refused" for item in items):
            return 422, {}, b"unknown sku"
        if identity not in self._seen:
            self._seen.add(identity)
            self.rows += [{"_id": item["id"], **item["item"]} for item in items]
        return 204, {}, b""


def webhook_peer(request: Any, tmp_path: Path) -> Peer:
    receiver = Receiver()
    stack = contextlib.ExitStack()
    server = stack.enter_context(serving(receiver.answer))
    request.addfinalizer(stack.close)
    return Peer(
        settings_of("webhook", f"{server.url}/items", credentials={"key": KEY}),
        context_of(tmp_path),
        lambda: receiver.rows,
        away={"url": f"http://{NOWHERE}/"},
    )


class ClickHouse:
    """Double of ClickHouse's HTTP interface: no server of it runs here.

    It takes an insert of JSON lines by the right login, each token once, into a table with some
    columns, and refuses what its parser would refuse, with the real server's codes.
    """

    COLUMNS = ("_id", "_run", "_at", "_url", "sku", "price")

    def __init__(self) -> None:
        self.rows: Rows = []
        self._tokens: set[str] = set()

    def answer(self, asked: Asked) -> Reply:
        query = asked.query
        if (asked.headers.get("x-clickhouse-user"), asked.headers.get("x-clickhouse-key")) != (
            "writer",
            "ch-password",
        ):
            return 403, {}, b"Code: 516. DB::Exception: writer: Authentication failed"
        if query.pop("query") != "INSERT INTO `shop`.`items` FORMAT JSONEachRow":
            return 404, {}, b"Code: 60. DB::Exception: Table does not exist. (UNKNOWN_TABLE)"
        token = query.pop("insert_deduplication_token")
        assert query == {
            "input_format_skip_unknown_fields": "1",
            "date_time_input_format": "best_effort",
        }
        rows = [json.loads(line) for line in asked.body.split(b"\n")]
        for row in rows:
            if not isinstance(row.get("price", 0), int | float):
                return 400, {}, b"Code: 27. DB::Exception: Cannot parse input: price"
        if token not in self._tokens:
            self._tokens.add(token)
            self.rows += [
                {name: row.get(name) for name in self.COLUMNS if name in row} for row in rows
            ]
        return 200, {}, b""


def clickhouse_peer(request: Any, tmp_path: Path) -> Peer:
    double = ClickHouse()
    stack = contextlib.ExitStack()
    server = stack.enter_context(serving(double.answer))
    request.addfinalizer(stack.close)
    return Peer(
        settings_of(
            "clickhouse",
            server.url,
            options={"table": "shop.items"},
            credentials={"user": "writer", "password": "ch-password"},
        ),
        context_of(tmp_path),
        lambda: double.rows,
        away={"url": f"http://{NOWHERE}"},
    )


MAKERS: dict[str, Callable[[Any, Path], Peer]] = {
    "folder-jsonl": lambda _request, path: folder_peer(path, "jsonl"),
    "folder-csv": lambda _request, path: folder_peer(path, "csv"),
    "folder-parquet": lambda _request, path: folder_peer(path, "parquet"),
    "s3": s3_peer,
    "table": lambda _request, path: table_peer(path),
    "postgresql": postgresql_peer,
    "mongodb": mongodb_peer,
    "kafka": kafka_peer,
    "rabbitmq": rabbitmq_peer,
    "own broker": own_broker_peer,
    "webhook": webhook_peer,
    "clickhouse": clickhouse_peer,
}
ON_SERVERS = ("postgresql", "rabbitmq")


def some(*names: str) -> list[Any]:
    """Parameters of the fixture for some peers only."""
    return [
        pytest.param(name, marks=pytest.mark.services if name in ON_SERVERS else ())
        for name in names
    ]


@pytest.fixture(params=some(*MAKERS))
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Peer:
    return MAKERS[request.param](request, tmp_path)
