"""Opens a storage node by its URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from apps.requeststore.engine.errors import BadSetting
from apps.requeststore.stores.base import StorageNode

_SWITCH = {"0": False, "1": True}


def open_node(name: str, url: str) -> StorageNode:
    """Return the storage node of ``url``; ``name`` is its name in settings.

    - ``sqlite:///var/lib/crawlyard/requests``, a folder; ``?sync=1`` survives a power failure;
    - ``postgresql://...``, as in libpq;
    - ``mongodb://...`` and ``mongodb+srv://...``, as in PyMongo.

    Raises:
        BadSetting: none of these; the text holds no password.
        RequestStoreUnavailable
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadSetting(f"the address of the node {name} cannot be read: {error}") from None
    # Imported on demand: each needs a library of its own.
    if parts.scheme in ("postgresql", "postgres"):
        from apps.requeststore.stores.postgres import PostgresNode

        return PostgresNode(url)
    if parts.scheme in ("mongodb", "mongodb+srv"):
        from apps.requeststore.stores.mongo import MongoNode

        return MongoNode(url)
    if parts.scheme != "sqlite":
        raise BadSetting(
            f"the node {name} is sqlite:///, postgresql:// or mongodb://, not {parts.scheme!r}"
        )
    if parts.netloc or not parts.path.strip("/"):
        raise BadSetting(f"the node {name}: sqlite:/// is followed by a folder")
    from apps.requeststore.stores.sqlite import SqliteNode

    folder = Path("/" + unquote(parts.path).lstrip("/"))
    if folder.is_file():
        raise BadSetting(f"the node {name}: {folder} is a file; requests need a folder")
    return SqliteNode(folder, **_options(name, parts.query))


def _options(name: str, query: str) -> dict[str, Any]:
    """Parse the query string."""
    options: dict[str, Any] = {}
    for option, values in parse_qs(query, keep_blank_values=True).items():
        if option != "sync" or values[-1] not in _SWITCH:
            raise BadSetting(f"the node {name}: of sqlite:/// the one option is sync=0 or sync=1")
        options[option] = _SWITCH[values[-1]]
    return options
