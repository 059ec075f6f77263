"""Opens a log store by its URL."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from apps.joblogs.stores.base import LogStore

_SWITCH: Final = {"0": False, "1": True}


class BadAddress(ValueError):
    """The URL names no log store; the text holds no password."""


def open_log_store(url: str) -> LogStore:
    """Return the store at ``url``; nothing is connected or created before ``setup``.

    - ``sqlite:///var/lib/crawlyard/logs``, a folder, with ``?sync=1`` for one that survives a power
      failure up to the last commit;
    - ``postgresql://...``, a libpq URL;
    - ``https://user:password@host:9200/?index=crawlyard-logs``, an Elasticsearch.

    Raises:
        BadAddress: the URL is none of them.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadAddress(f"the address of the log store cannot be read: {error}") from None
    # Imported lazily: each adapter needs a library that the others do not.
    if parts.scheme in ("postgresql", "postgres"):
        from apps.joblogs.stores.postgres import PostgresLogStore

        try:
            return PostgresLogStore(url)
        except ValueError as error:
            raise BadAddress(str(error)) from None
    if parts.scheme in ("http", "https"):
        from apps.joblogs.stores.elastic import open_elastic

        return open_elastic(url)
    if parts.scheme != "sqlite":
        raise BadAddress(
            f"a log store is sqlite:///, postgresql:// or https://, not {parts.scheme!r}"
        )
    if parts.netloc or not parts.path.strip("/"):
        raise BadAddress("sqlite:/// is followed by a folder, as in sqlite:///var/lib/logs")
    from apps.joblogs.stores.sqlite import SqliteLogStore

    folder = Path("/" + unquote(parts.path).lstrip("/"))
    if folder.is_file():
        raise BadAddress(f"{folder} is a file; log lines need a folder")
    return SqliteLogStore(folder, sync=_sync(parts.query))


def _sync(query: str) -> bool:
    sync = False
    for option, values in parse_qs(query, keep_blank_values=True).items():
        if option != "sync" or values[-1] not in _SWITCH:
            raise BadAddress("of sqlite:/// the one option is sync=0 or sync=1")
        sync = _SWITCH[values[-1]]
    return sync
