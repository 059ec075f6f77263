"""Settings of the database."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import dj_database_url

from apps.runtime.engine.postgres_link import LINK
from yardkit.env import EnvError

_POSTGRES = "django.db.backends.postgresql"


def database(url: str) -> dict[str, Any]:
    """Return ``DATABASES["default"]`` for DATABASE_URL. Raises ``EnvError``."""
    if "," in urlsplit(url).netloc.rpartition("@")[2]:
        raise EnvError("DATABASE_URL: names several hosts, only one is supported")
    try:
        values: dict[str, Any] = dict(dj_database_url.parse(url))
    except (ValueError, KeyError) as error:
        raise EnvError(
            "DATABASE_URL: not understood; use sqlite:///path/to/file or "
            "postgresql://user:password@host:5432/name"
        ) from error
    if values["ENGINE"] == "django.db.backends.sqlite3":
        values["OPTIONS"] = {
            # IMMEDIATE takes the write lock at the start, so that two writers queue instead of one
            # failing in the middle of its transaction.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
    elif values["ENGINE"] == _POSTGRES:
        # Options in the URL take precedence: sslmode, certificates, search_path.
        values["OPTIONS"] = dict(LINK) | values.get("OPTIONS", {})
        if "," in values["OPTIONS"].get("host", ""):
            raise EnvError("DATABASE_URL: names several hosts, only one is supported")
    else:
        raise EnvError("DATABASE_URL: only SQLite and PostgreSQL are supported")
    return values


def suit_web(known: dict[str, Any]) -> None:
    """Change ``DATABASES["default"]`` for a process with many threads."""
    if known["ENGINE"] != _POSTGRES:
        return
    options = known["OPTIONS"]
    # Answer 503 instead of waiting for a lock.
    options["options"] = f"-c lock_timeout=8s {options.get('options', '')}".rstrip()
    options["pool"] = {"min_size": 1, "max_size": 8, "timeout": 10}
