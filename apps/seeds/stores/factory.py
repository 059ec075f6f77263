"""Opens a seed store by its URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.stores.base import SeedStore

_SWITCH = {"0": False, "1": True}


def open_store(url: str) -> SeedStore:
    """Open the store at ``url``.

    - ``rocksdb:///var/lib/crawlyard/seeds``, with ``?sync=0`` for one that need not survive a power
      failure, and ``?max_filters=64`` for the number of Bloom filters in memory;
    - ``postgresql://...``, a libpq URL.

    Raises:
        InvalidFrontierSetting: the URL is invalid; the text holds no password.
        StoreInUse, SeedStoreUnavailable
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidFrontierSetting(
            f"the address of the seed store cannot be read: {error}"
        ) from None
    # Imported lazily: each adapter needs a library that the other one does not.
    if parts.scheme in ("postgresql", "postgres"):
        from apps.seeds.stores.postgres import PostgresStore

        return PostgresStore(url)
    if parts.scheme != "rocksdb":
        raise InvalidFrontierSetting(
            f"a seed store is rocksdb:/// or postgresql://, not {parts.scheme!r}"
        )
    if parts.netloc or not parts.path.strip("/"):
        raise InvalidFrontierSetting(
            "rocksdb:/// is followed by a folder, as in rocksdb:///var/lib/seeds"
        )
    from apps.seeds.stores.rocks import RocksStore

    return RocksStore(Path(unquote(parts.path)), **_options(parts.query))


def _options(query: str) -> dict[str, Any]:
    """Parse the query of the URL."""
    options: dict[str, Any] = {}
    for name, values in parse_qs(query, keep_blank_values=True).items():
        value = values[-1]
        if name == "sync" and value in _SWITCH:
            options[name] = _SWITCH[value]
        elif name == "max_filters" and value.isdecimal() and 0 < int(value) <= 10_000:
            options[name] = int(value)
        else:
            raise InvalidFrontierSetting(
                f"{name}={value} is no option of rocksdb:///: sync=0 or 1, max_filters"
            )
    return options
