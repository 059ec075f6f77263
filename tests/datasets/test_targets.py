"""Promises that every target keeps, each with a real peer; see ``peers`` for ClickHouse."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from apps.datasets.engine.targets.base import BadTarget, Chunk, TargetUnavailable
from apps.datasets.engine.targets.factory import KINDS, check, open_target
from tests.datasets.peers import MAKERS, Peer, context_of, peer, settings_of, some
from tests.datasets.test_table_target import item_of

__all__ = ["peer"]

NEWS = [item_of(n, {"sku": f"s{n}", "price": n, "text": "中文 'q'"}) for n in range(1, 31)]


def chunk_of(*items: Any, batch: int = 4, offset: int = 0) -> Chunk:
    return Chunk("news", batch, offset, items)


def identities(peer: Peer) -> list[str]:
    return sorted(row["_id"] for row in peer.read())


@pytest.mark.slow("2 s")
@pytest.mark.covers("DS.10")
def test_all_items_arrive(peer: Peer) -> None:
    with closing(peer.open()) as target:
        assert target.write(chunk_of(*NEWS[:20])) == {}
        assert target.write(chunk_of(*NEWS[20:], batch=5)) == {}
    rows = peer.read()
    assert sorted(row["_id"] for row in rows) == sorted(item.id for item in NEWS)
    by_id = {row["_id"]: row for row in rows}
    for item in NEWS:
        assert by_id[item.id]["sku"] == item.data["sku"]
        assert float(by_id[item.id]["price"]) == item.data["price"]


@pytest.mark.slow("2 s")
@pytest.mark.covers("DS.10")
def test_a_repeated_chunk_has_the_same_identities(peer: Peer) -> None:
    for _ in range(2):
        # Another process repeats it after a crash.
        with closing(peer.open()) as target:
            assert target.write(chunk_of(*NEWS)) == {}
    expected = sorted(item.id for item in NEWS)
    if peer.repeats:
        assert identities(peer) == sorted(expected * 2)
    else:
        assert identities(peer) == expected


@pytest.mark.covers("DS.10")
@pytest.mark.parametrize("peer", some("table", "postgresql", "mongodb"), indirect=True)
def test_by_key_the_latest_item_stays(peer: Peer) -> None:
    options = {**_plain(peer), "upsert": "key"}
    with closing(peer.open(options=_options(options), key_fields=["sku"])) as target:
        refused = target.write(
            chunk_of(
                item_of(1, {"sku": "a", "price": 1}),
                item_of(2, {"price": 2}),
                item_of(3, {"sku": "a", "price": 3}),
                item_of(4, {"sku": "b", "price": 4}),
            )
        )
        assert refused == {1: "the key field sku has no value"}
    assert sorted((row["sku"], row["price"]) for row in peer.read()) == [("a", 3), ("b", 4)]


def _options(values: dict[str, Any]) -> Any:
    return settings_of("table", options=values).options


def _plain(peer: Peer) -> dict[str, Any]:
    options = peer.settings.options
    return {name: getattr(options, name) for name in options.__struct_fields__}


# What each target refuses for good; files and queues of our size take everything.
REFUSED: dict[str, dict[str, Any]] = {
    "mongodb": {"a\0b": 1},
    "kafka": {"sku": "x" * 2_000_000},
    "webhook": {"sku": "refused"},
    "clickhouse": {"price": "cheap"},
}


@pytest.mark.slow("1 s")
@pytest.mark.covers("DS.10")
@pytest.mark.parametrize("peer", some(*REFUSED), indirect=True)
@pytest.mark.parametrize("bad", [(0,), (7, 8), (29,)])
def test_an_item_that_is_refused_costs_only_itself(peer: Peer, bad: tuple[int, ...]) -> None:
    data = REFUSED[peer.settings.kind]
    items = [item_of(n, data) if n - 1 in bad else NEWS[n - 1] for n in range(1, 31)]
    with closing(peer.open()) as target:
        refused = target.write(chunk_of(*items))
    assert tuple(sorted(refused)) == bad
    assert all(refused.values())
    assert identities(peer) == sorted(
        item.id for place, item in enumerate(items) if place not in bad
    )


# All but a file of this host, and the platform's own broker.
REMOTE = some(*(name for name in MAKERS if name not in ("table", "own broker")))


@pytest.mark.slow("3 s")
@pytest.mark.covers("DS.10")
@pytest.mark.parametrize("peer", REMOTE, indirect=True)
def test_a_target_that_is_away_loses_nothing(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (("documents", "TIMEOUT_MS"), ("queues", "CONFIRM_SECONDS")):
        monkeypatch.setattr(f"apps.datasets.engine.targets.{module}.{name}", 1)
    monkeypatch.setattr("apps.datasets.engine.targets.documents.TIMEOUT_MS", 300)
    changes = dict(peer.away)
    context = changes.pop("context", peer.context)
    values = {name: getattr(peer.settings, name) for name in peer.settings.__struct_fields__}
    settings = type(peer.settings)(**(values | changes))
    with closing(open_target(settings, context)) as target:
        with pytest.raises(TargetUnavailable) as caught:
            target.write(chunk_of(*NEWS))
        for secret in (settings.credentials.password, settings.credentials.key):
            assert not secret or secret not in str(caught.value)


def test_fields_named_like_the_identity_are_kept(peer: Peer) -> None:
    with closing(peer.open()) as target:
        assert target.write(chunk_of(item_of(1, {"_id": "own", "sku": "a", "price": 1}))) == {}
    (row,) = peer.read()
    if peer.settings.kind in ("kafka", "rabbitmq", "webhook") or "parquet" in _plain(peer).values():
        # The item is apart from its identity.
        assert row["_id"] == "own"
    else:
        assert row["_id"] == "7-b1-1"
    if peer.settings.kind in ("folder", "table", "postgresql", "mongodb") and row["_id"] != "own":
        assert row["_id_"] == "own"


HOSTS: dict[str, dict[str, Any]] = {
    "s3": {
        "url": "s3://bucket/x?endpoint=http%3A%2F%2F10.0.0.7",
        "credentials": {"user": "a", "password": "b"},
    },
    "postgresql": {"url": "postgresql://public.example,10.0.0.7/db", "options": {"table": "t"}},
    "mongodb": {"url": "mongodb://[::1]:27017/", "options": {"collection": "a.b"}},
    "kafka": {"url": "169.254.169.254:80", "options": {"topic": "t"}},
    "rabbitmq": {"url": "amqp://192.168.1.1/v", "options": {"queue": "q"}},
}


@pytest.mark.covers("DS.10")
@pytest.mark.parametrize("kind", HOSTS)
def test_private_hosts_are_refused(kind: str, tmp_path: Path) -> None:
    settings = settings_of(kind, **HOSTS[kind])
    with pytest.raises(BadTarget, match="DELIVERY_ALLOWED_NETWORKS"):
        open_target(settings, context_of(tmp_path, networks=()))


@pytest.mark.parametrize("kind", ["webhook", "clickhouse"])
def test_private_hosts_are_refused_when_a_call_connects(kind: str, tmp_path: Path) -> None:
    settings = settings_of(kind, "http://127.0.0.1:9/x", options={"table": "t"})
    with (
        closing(open_target(settings, context_of(tmp_path, networks=()))) as target,
        pytest.raises(TargetUnavailable, match="loopback"),
    ):
        target.write(chunk_of(*NEWS[:1]))


BAD = [
    ("nothing", "", {}, "target"),
    ("folder", "", {"format": "exe"}, "format"),
    ("folder", "", {"folder": "../x"}, "folder"),
    ("folder", "", {"template": "{date}/x.jsonl"}, "batch"),
    ("folder", "", {"template": "/x/{batch}-{offset}"}, "below"),
    ("folder", "", {"template": "../{batch}-{offset}"}, "below"),
    ("folder", "", {"template": "{batch.__class__}-{offset}"}, "unknown"),
    ("folder", "", {"template": "{batch}-{offset:>99999999}"}, "unknown"),
    ("folder", "", {"template": "{batch!r}-{offset}"}, "unknown"),
    ("folder", "", {"template": "{batch}-{offset"}, "template"),
    ("s3", "s3://bucket/x", {}, "credentials"),
    ("s3", "file:///etc", {}, "address"),
    ("table", "", {"table": ""}, "table"),
    ("table", "", {"table": "a.b"}, "dots"),
    ("table", "", {"table": "x" * 60}, "63"),
    ("postgresql", "postgresql://h.example/db?host=/run/postgresql", {"table": "t"}, "host"),
    ("postgresql", "postgresql://h.example/db?sslkey=/etc/x", {"table": "t"}, "sslkey"),
    ("postgresql", "postgresql:///db", {"table": "t"}, "address"),
    ("postgresql", "postgresql://u:p@h.example/db", {"table": "t"}, "credentials"),
    ("postgresql", "mysql://h.example/db", {"table": "t"}, "postgresql"),
    ("mongodb", "mongodb://h.example/?tlsCAFile=/etc/x", {"collection": "a.b"}, "tlsCAFile"),
    ("mongodb", "mongodb://h.example/?authMechanism=MONGODB-AWS", {"collection": "a.b"}, "SCRAM"),
    ("mongodb", "mongodb://h.example/", {"collection": "items"}, "collection"),
    ("kafka", "kafka://h.example", {"topic": "t"}, "kafka1:9092"),
    ("kafka", "h.example:9092", {"topic": "t", "settings": {"ssl.ca.location": "/x"}}, "ssl.ca"),
    ("rabbitmq", "http://h.example", {"queue": "q"}, "amqp"),
    ("clickhouse", "https://h.example/?user=x", {"table": "t"}, "option"),
    ("clickhouse", "https://h.example", {"table": "a`b"}, "table"),
    ("webhook", "ftp://h.example", {}, "https"),
    ("webhook", "https://u:p@h.example", {}, "credentials"),
    ("table", "", {"table": "t", "upsert": "key"}, "no key"),
    ("table", "", {"table": "t", "upsert": "url"}, "upsert"),
]


@pytest.mark.parametrize(("kind", "url", "options", "says"), BAD)
def test_settings_that_never_work_are_refused(
    kind: str, url: str, options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(BadTarget, match=says):
        check(settings_of(kind, url, options=options), context_of(tmp_path))


def test_every_kind_has_a_peer(tmp_path: Path) -> None:
    assert {name.partition("-")[0] for name in MAKERS} - {"own broker"} == set(KINDS)


def test_names_of_datasets_stay_apart_in_a_folder(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    with closing(open_target(settings_of("folder"), context)) as target:
        for name in ("a/b", "a_b", "..", "a:b"):
            target.write(Chunk(name, 1, 0, NEWS[:1]))
    files = [path for path in (tmp_path / "records" / "p5").rglob("*") if path.is_file()]
    assert len(files) == 4


def test_cells_cannot_become_formulas(tmp_path: Path) -> None:
    data = {"=HYPERLINK()": "=1+1", "n": -5, "list": ["@x"], "wide": "\uff1d1", "esc": "\x1b[2J=1"}
    with closing(
        open_target(settings_of("folder", options={"format": "csv"}), context_of(tmp_path))
    ) as target:
        target.write(chunk_of(item_of(1, data)))
    (file,) = (path for path in (tmp_path / "records").rglob("*.csv"))
    assert file.read_text().splitlines() == [
        "_id,_run,_at,_url,'=HYPERLINK(),n,list,wide,esc",
        "7-b1-1,7,2026-09-21T14:13:20.000Z,http://a.example/,'=1+1,-5,"
        """"[""@x""]",'\uff1d1,[2J=1""",
    ]
