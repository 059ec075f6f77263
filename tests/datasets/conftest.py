"""Object store and catalog of its own for each test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def objects(settings: Any, tmp_path: Path) -> Path:
    """Folder of the object store."""
    folder = tmp_path / "objects"
    settings.OBJECTS_URL = f"file://{folder}"
    return folder


@pytest.fixture(autouse=True)
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catalog of Iceberg tables in a file, since quick tests have their database in memory."""
    url = f"sqlite:///{tmp_path}/catalog.sqlite3"

    def database() -> str:
        if not (tmp_path / "catalog.sqlite3").exists():
            from pyiceberg.catalog.sql import SqlCatalog

            SqlCatalog("crawlyard", uri=url).destroy_tables()
            SqlCatalog("crawlyard", uri=url).create_tables()
        return url

    monkeypatch.setattr("apps.datasets.services.compaction.catalog_database", database)
