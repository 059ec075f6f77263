"""Object store and catalog of its own for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from apps.datasets.services import compaction


@pytest.fixture(autouse=True)
def objects(settings: Any, tmp_path: Path) -> Path:
    """Folder of the object store."""
    folder = tmp_path / "objects"
    settings.OBJECTS_URL = f"file://{folder}"
    return folder


@pytest.fixture(scope="session")
def make_catalog(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], None]:
    """Write an empty catalog of Iceberg tables to a file."""

    @cache
    def empty() -> bytes:
        from pyiceberg.catalog.sql import SqlCatalog

        path = tmp_path_factory.mktemp("catalog") / "empty.sqlite3"
        with closing(SqlCatalog("crawlyard", uri=f"sqlite:///{path}")) as made:
            made.create_tables()
        return path.read_bytes()

    def make(path: Path) -> None:
        path.write_bytes(empty())

    return make


@pytest.fixture(autouse=True)
def catalog(
    objects: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_catalog: Callable[[Path], None],
) -> Iterator[None]:
    """Catalog of Iceberg tables in a file, since quick tests have their database in memory."""
    path = tmp_path / "catalog.sqlite3"

    def database() -> str:
        if not path.exists():
            make_catalog(path)
        return f"sqlite:///{path}"

    monkeypatch.setattr(compaction, "catalog_database", database)
    yield
    opened = compaction.tables()._opened
    compaction._tables.cache_clear()
    if opened is not None:
        opened.close()
