"""From an address to a store, and from a seed to the reason why it is not new."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.seeds.engine.errors import BadSeed, InvalidFrontierSetting
from apps.seeds.engine.seeds import DEFAULT_SEGMENT, Seed
from apps.seeds.stores.base import SeedStore
from apps.seeds.stores.explanations import explain
from apps.seeds.stores.factory import open_store
from apps.seeds.stores.postgres import PostgresStore
from apps.seeds.stores.rocks import RocksStore
from tests.seeds.stores.calls import FRONTIER, NOW, RULES, TODAY, add


@pytest.mark.parametrize("options", ["", "?sync=0", "?sync=1&max_filters=3"])
def test_a_folder_is_rocksdb(tmp_path: Path, options: str) -> None:
    store = open_store(f"rocksdb://{tmp_path}/with%20space{options}")
    store.close()
    assert isinstance(store, RocksStore)
    assert (tmp_path / "with space" / "db" / "CURRENT").is_file()


@pytest.mark.services
def test_a_server_is_postgresql(postgres_url: str) -> None:
    store = open_store(postgres_url)
    store.close()
    assert isinstance(store, PostgresStore)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis://h",
        "rocksdb://",
        "rocksdb:///",
        "rocksdb://host/folder",
        "rocksdb:///x?sync=yes",
        "rocksdb:///x?max_filters=0",
        "rocksdb:///x?speed=1",
        "http://[::1",
    ],
    ids=["none", "redis", "nothing", "root", "host", "sync", "filters", "option", "bad"],
)
def test_another_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidFrontierSetting):
        open_store(url)


def test_why_a_seed_is_not_new(store: SeedStore) -> None:
    would = explain(store, FRONTIER, RULES, Seed("a", NOW))
    assert (would.new, would.segment, would.key, would.due) == (True, TODAY, "a", NOW)
    add(store, "a", active_at=NOW)
    told = explain(store, FRONTIER, RULES, Seed("a", NOW + 5))
    assert not told.new
    assert told.known is not None
    assert told.known.added_at == NOW
    assert explain(store, FRONTIER, RULES, Seed("a")).segment == DEFAULT_SEGMENT
    with pytest.raises(BadSeed):
        explain(store, FRONTIER, RULES, Seed(""))
