"""Object store and catalog of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
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


@pytest.fixture(autouse=True)
def catalog(objects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Catalog of Iceberg tables in a file, since quick tests have their database in memory."""
    url = f"sqlite:///{tmp_path}/catalog.sqlite3"

    def database() -> str:
        if not (tmp_path / "catalog.sqlite3").exists():
            from pyiceberg.catalog.sql import SqlCatalog

            with closing(SqlCatalog("crawlyard", uri=url)) as made:
                made.create_tables()
        return url

    monkeypatch.setattr(compaction, "catalog_database", database)
    yield
    opened = compaction.tables()._opened
    compaction._tables.cache_clear()
    if opened is not None:
        opened.close()
