"""Settings of the log store and of this process's own log lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

from yardkit.env import Env, EnvError

_SERVERS: Final = ("postgresql", "postgres", "http", "https")


def logs_url(env: Env, *, database: str, folder: Path) -> str:
    """Return LOGS_URL; by default the database if it is PostgreSQL, else ``folder``.

    Raises ``EnvError``; its text omits the URL, which may contain a password.
    """
    url = env.secret("LOGS_URL", default="")
    if not url:
        on_postgres = database.startswith(("postgresql://", "postgres://"))
        return database if on_postgres else f"sqlite://{quote(str(folder))}"
    try:
        parts = urlsplit(url)
    except ValueError:
        raise EnvError(
            "LOGS_URL: not understood; is a [ or ] of an IPv6 address missing?"
        ) from None
    if parts.scheme in _SERVERS and parts.netloc:
        return url
    if parts.scheme != "sqlite" or parts.netloc or not parts.path.strip("/"):
        raise EnvError(
            "LOGS_URL: not understood; use sqlite:///folder, postgresql://user:password@host/name"
            " or, for Elasticsearch, http://host:9200"
        )
    for option, values in parse_qs(parts.query, keep_blank_values=True).items():
        if option != "sync" or values[-1] not in ("0", "1"):
            raise EnvError("LOGS_URL: of sqlite:/// the one option is ?sync=0 or ?sync=1")
    return url


def logging_settings(level: str) -> dict[str, Any]:
    """Return ``LOGGING``: one line an entry, to the standard error stream."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": "yardkit.log_lines.OneLineFormatter",
                "format": "%(asctime)s %(levelname)-7s %(name)s: %(message)s",
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        # Two lines for each task would hide all other lines.
        "loggers": {
            name: {"level": "DEBUG" if level == "DEBUG" else "WARNING"}
            for name in (
                "celery.app.trace",
                "celery.beat",
                "celery.worker.strategy",
                "django_celery_beat.schedulers",
            )
        },
    }
