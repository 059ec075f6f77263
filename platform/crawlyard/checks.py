"""Checks of unsafe settings: no process starts with an error (docs/settings.md)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from apps.runtime.checks import START_TAG, is_loopback
from crawlyard.settings.base import env

_POSTGRES: Final = ("postgresql", "postgres")
# Options of PostgreSQL and MongoDB that authenticate without a password in the URL.
_OTHER_PROOFS: Final = ("passfile", "sslcert", "service", "requirepeer")


def _stores() -> Iterator[tuple[str, str]]:
    """Yield every store URL with the setting that names it."""
    for name in ("DATABASE_URL", "SEEDS_URL", "LOGS_URL", "RECORDS_URL", "REDIS_URL", "BROKER_URL"):
        yield name, getattr(settings, name)
    for name, url in settings.REQUESTS_NODES.items():
        yield "REQUESTS_URL" if name == "default" else f"REQUESTS_NODES {name}", url


def _is_elsewhere(url: str) -> bool:
    """Return whether the URL may lead to another machine; of several hosts one is enough."""
    parts = urlsplit(url)
    if parts.scheme in ("", "sqlite", "rocksdb", "unix", "file"):
        return False
    if parts.scheme in _POSTGRES:
        hosts = str(_known(url).get("hostaddr") or _known(url).get("host") or "").split(",")
    else:
        hosts = [_host(address) for address in parts.netloc.rpartition("@")[2].split(",")]
    return any(not is_loopback(host) for host in hosts if not host.startswith("/"))


def _host(place: str) -> str:
    """Return a host without its port."""
    if place.startswith("["):
        return place[1:].partition("]")[0]
    return place.partition(":")[0]


def _known(url: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(url))
    except ProgrammingError:
        # The code that opens the store reports an invalid URL.
        return {}


@register(START_TAG)
def debug_is_for_a_laptop(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Require ``DEBUG`` off in production: Django's error pages show settings to visitors."""
    if not settings.DEBUG:
        return []
    elsewhere = [name for name, url in _stores() if _is_elsewhere(url)]
    if settings.BEHIND_TLS:
        elsewhere.append("BEHIND_TLS")
    if not elsewhere:
        return []
    return [
        Error(
            f"DEBUG is on, but this is no laptop: {elsewhere[0]} says so.",
            hint="Take DEBUG away; LOG_LEVEL=DEBUG writes more to the log.",
            id="crawlyard.E001",
        )
    ]


@register(START_TAG)
def stores_require_passwords(
    app_configs: Sequence[Any] | None, **kwargs: Any
) -> list[CheckMessage]:
    """Require authentication of stores on other machines."""
    if settings.DEBUG:
        return []
    return [
        Error(
            f"{name} names a server on another host and no password.",
            hint="Give its user a password, and put it into the address (or its _FILE).",
            id="crawlyard.E002",
        )
        for name, url in _stores()
        if _is_elsewhere(url) and not _proves(url)
    ]


def _proves(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme in _POSTGRES:
        known = _known(url)
        if known.get("password") or any(known.get(name) for name in _OTHER_PROOFS):
            return True
        given = any(os.environ.get(name) for name in ("PGPASSWORD", "PGPASSFILE", "PGSSLCERT"))
        return given or (Path.home() / ".pgpass").is_file()
    options = {name.lower() for name in parse_qs(parts.query)}
    if parts.scheme in ("redis", "rediss"):
        return bool(parts.password) or bool(options & {"password", "ssl_certfile"})
    if parts.scheme.startswith("mongodb"):
        return bool(parts.password) or bool(options & {"authmechanism", "tlscertificatekeyfile"})
    # The broker has its own check; Elasticsearch may be behind an authenticating proxy.
    return True


@register(START_TAG)
def keys_are_shared(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Require configured keys with a shared database: each host would generate its own."""
    if not _is_elsewhere(settings.DATABASE_URL):
        return []
    return [
        Error(
            f"{name} is not set, but DATABASE_URL names another host.",
            hint="Each host would make a key of its own: give the same one to every process; the "
            f"one this host has used so far is {settings.DATA_DIR / file}.",
            id="crawlyard.E003",
        )
        for name, file in (("SECRET_KEY", "secret_key"), ("SECRETBOX_KEYS", "secretbox_key"))
        if not env.settings[name].given
    ]


@register(START_TAG)
def keys_are_private(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Require that key files in the data folder are readable by their owner only."""
    messages: list[CheckMessage] = []
    for name in ("secret_key", "secretbox_key"):
        file = Path(settings.DATA_DIR) / name
        if file.exists() and stat.S_IMODE(file.stat().st_mode) & 0o077:
            messages.append(
                Error(
                    f"{file} can be read by others.",
                    hint=f"chmod 600 {file}, and change the key if somebody may have read it.",
                    id="crawlyard.E004",
                )
            )
    return messages


@register(Tags.security)
def cookies_are_secure(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Require secure cookies in a web process that is reached by https."""
    if settings.DEBUG or settings.BEHIND_TLS or not settings.PUBLIC_URL.startswith("https:"):
        return []
    return [
        Error(
            "PUBLIC_URL is https, but BEHIND_TLS is not set: cookies would go without Secure.",
            hint="Set BEHIND_TLS=1, and have the proxy set X-Forwarded-Proto.",
            id="crawlyard.E005",
        )
    ]
