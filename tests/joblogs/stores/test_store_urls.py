"""From an address to a log store."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.joblogs.stores.base import LogStoreUnavailable
from apps.joblogs.stores.factory import BadAddress, open_log_store
from apps.joblogs.stores.postgres import PostgresLogStore
from apps.joblogs.stores.sqlite import SqliteLogStore
from tests.joblogs.stores.lines import LONG_AGO, batch, line, seqs


def test_a_folder_is_sqlite_and_made_when_it_is_set_up(tmp_path: Path) -> None:
    store = open_log_store(f"sqlite://{tmp_path}/new%20folder?sync=1")
    assert isinstance(store, SqliteLogStore)
    assert not (tmp_path / "new folder").exists()
    store.setup()
    store.write([batch([line(1)])], now=LONG_AGO)
    store.close()
    with pytest.raises(LogStoreUnavailable, match="closed"):
        store.usages()
    again = open_log_store(f"sqlite://{tmp_path}/new%20folder")
    assert seqs(again.page("run:7", limit=9)) == [1]
    again.close()


def test_a_server_is_not_asked_before_it_is_needed() -> None:
    store = open_log_store("postgresql://u:canary@127.0.0.1:9/x?connect_timeout=1")
    assert isinstance(store, PostgresLogStore)
    store.close()


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:canary@h/x",
        "sqlite://canary/x",
        "sqlite:///",
        "sqlite:///x?sync=2",
        "sqlite:///x?canary=1",
        "sqlite:///etc/passwd",
        "postgresql://u:canary@h/x?what=1",
        "http://[::1",
        "",
    ],
)
def test_what_names_no_store(url: str) -> None:
    with pytest.raises(BadAddress) as told:
        open_log_store(url)
    assert "u:canary" not in str(told.value)
