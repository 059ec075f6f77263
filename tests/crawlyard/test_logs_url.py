"""LOGS_URL: where log lines are kept, and what is said of an address that names no store."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawlyard.settings.logs import logs_url
from yardkit.env import Env, EnvError

FOLDER = Path("/var/lib/crawl yard/logs")
POSTGRES = "postgresql://u:canary@db/crawlyard"


def read(url: str = "", database: str = "sqlite:///x.sqlite3") -> str:
    return logs_url(Env({"LOGS_URL": url}), database=database, folder=FOLDER)


def test_beside_the_database_where_that_is_postgresql() -> None:
    assert read(database=POSTGRES) == POSTGRES
    assert read() == "sqlite:///var/lib/crawl%20yard/logs"


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///logs",
        "sqlite:////var/logs?sync=1",
        POSTGRES,
        "postgres://db/x",
        "http://es:9200",
        "https://u:p@es",
    ],
)
def test_what_names_a_store(url: str) -> None:
    assert read(url, database=POSTGRES) == url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("logs", "sqlite:///folder"),
        ("sqlite://", "sqlite:///folder"),
        ("sqlite://host/logs", "sqlite:///folder"),
        ("sqlite:///", "sqlite:///folder"),
        ("http://", "http://host:9200"),
        ("mysql://u:canary@h/x", "postgresql://"),
        ("http://[::1", "IPv6"),
        ("sqlite:///logs?sync=yes", r"\?sync=1"),
        ("sqlite:///logs?canary=1", r"\?sync=1"),
    ],
)
def test_what_does_not(url: str, said: str) -> None:
    with pytest.raises(EnvError, match=said) as told:
        read(url)
    assert str(told.value).startswith("LOGS_URL: ")
    assert "canary" not in str(told.value)
