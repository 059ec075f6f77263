"""From an address to a storage node."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.requeststore.engine.errors import BadSetting
from apps.requeststore.stores.factory import open_node
from apps.requeststore.stores.postgres import PostgresNode
from apps.requeststore.stores.sqlite import SqliteNode


@pytest.mark.parametrize("options", ["", "?sync=0", "?sync=1"])
def test_a_folder_is_sqlite(tmp_path: Path, options: str) -> None:
    node = open_node("default", f"sqlite://{tmp_path}/with%20space{options}")
    assert isinstance(node, SqliteNode)
    assert (tmp_path / "with space").is_dir()
    node.close()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_server_is_asked_nothing_before_it_is_used(scheme: str) -> None:
    node = open_node("second", f"{scheme}://postgres:secret@127.0.0.1:1/none")
    assert isinstance(node, PostgresNode)
    node.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis://h",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/folder",
        "sqlite:///x?sync=yes",
        "sqlite:///x?speed=1",
        "postgresql://u:secret@h/n?nonsense=1",
        "http://[::1",
    ],
    ids=["none", "redis", "nothing", "root", "host", "sync", "option", "libpq", "bad"],
)
def test_another_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(BadSetting) as caught:
        open_node("second", url)
    assert "secret" not in str(caught.value)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadSetting, match="is a file"):
        open_node("default", f"sqlite://{tmp_path}/file")
