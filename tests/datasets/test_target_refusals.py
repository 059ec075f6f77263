"""What a target refuses: an item costs only itself, the target itself costs no item."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from apps.datasets.engine.targets.base import TargetUnavailable
from tests.datasets.peers import Peer, peer, some
from tests.datasets.test_table_target import item_of
from tests.datasets.test_targets import NEWS, chunk_of, identities

__all__ = ["peer"]

pytestmark = pytest.mark.covers("DS.10")
# A B-tree takes keys of a third of a page.
LONG = "".join(secrets.token_hex(4000))


def by_key(peer: Peer) -> dict[str, Any]:
    options = peer.settings.options
    values = {name: getattr(options, name) for name in options.__struct_fields__}
    return {"options": type(options)(**(values | {"upsert": "key"})), "key_fields": ["sku"]}


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    """The server of the peer, as its administrator."""
    with psycopg.connect(request.getfixturevalue("empty_database"), autocommit=True) as found:
        yield found


@pytest.mark.parametrize("peer", some("postgresql"), indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("CREATE TABLE items (_id text, sku text)", id="without a key"),
        pytest.param("CREATE VIEW items AS SELECT '1'::text AS _id", id="a view"),
    ],
)
def test_a_table_that_takes_nothing_costs_no_item(
    peer: Peer, statement: LiteralString, server: psycopg.Connection[Any]
) -> None:
    server.execute(statement)
    with closing(peer.open()) as target, pytest.raises(TargetUnavailable):
        target.write(chunk_of(*NEWS))


@pytest.mark.parametrize("peer", some("postgresql"), indirect=True)
def test_a_login_without_rights_costs_no_item(
    peer: Peer, server: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    role = sql.Identifier(f"reader_{secrets.token_hex(4)}")
    with closing(peer.open()) as target:
        assert target.write(chunk_of(*NEWS[:10])) == {}
    server.execute(sql.SQL("CREATE ROLE {}").format(role))
    try:
        # As a login of that role would be.
        monkeypatch.setenv("PGOPTIONS", f"-c role={role.as_string()[1:-1]}")
        with closing(peer.open()) as target, pytest.raises(TargetUnavailable, match="denied"):
            target.write(chunk_of(*NEWS[10:]))
    finally:
        server.execute(sql.SQL("DROP ROLE {}").format(role))
    monkeypatch.undo()
    with closing(peer.open()) as target:
        assert target.write(chunk_of(*NEWS[10:])) == {}
    assert identities(peer) == sorted(item.id for item in NEWS)


@pytest.mark.parametrize("peer", some("postgresql"), indirect=True)
def test_a_key_that_no_index_holds_costs_only_its_item(peer: Peer) -> None:
    items = [*NEWS[:5], item_of(6, {"sku": LONG, "price": 1}), *NEWS[6:10]]
    with closing(peer.open(**by_key(peer))) as target:
        refused = target.write(chunk_of(*items))
    assert list(refused) == [5]
    assert "index row" in refused[5]
    assert len(peer.read()) == 9


@pytest.mark.parametrize("peer", some("table", "postgresql", "mongodb"), indirect=True)
def test_an_older_item_of_a_key_never_replaces_a_newer_one(peer: Peer) -> None:
    """Dead letters come again later, and so do the items of a process that was frozen."""
    old = [item_of(n, {"sku": f"s{n}", "price": 1, "only": "old"}) for n in range(1, 11)]
    new = [item_of(n, {"sku": f"s{n}", "price": 2}, run=8) for n in range(1, 6)]
    same = [item_of(20 + n, {"sku": f"s{n}", "price": 3}, run=8) for n in (1, 1, 2)]
    with closing(peer.open(**by_key(peer))) as target:
        assert target.write(chunk_of(*new)) == {}
        assert target.write(chunk_of(*same, batch=5)) == {}
        assert target.write(chunk_of(*old, batch=1)) == {}
        # Again from the beginning.
        for items in (old, new, same):
            assert target.write(chunk_of(*items)) == {}
    rows = {row["sku"]: row for row in peer.read()}
    prices = [rows[f"s{n}"]["price"] for n in range(1, 11)]
    assert prices == [3, 3, 2, 2, 2, 1, 1, 1, 1, 1]
    assert not rows["s1"].get("only")
