"""What DATABASE_URL says of its server is what connections are made with."""

from __future__ import annotations

import pytest

from crawlyard.settings.database import database, suit_web
from yardkit.env import EnvError

URL = "postgresql://u:p@db.example/yard"


def test_what_stands_behind_the_address_is_kept() -> None:
    found = database(f"{URL}?sslmode=verify-full&sslrootcert=/ca.pem&connect_timeout=2")
    assert found["OPTIONS"] == {
        "sslmode": "verify-full",
        "sslrootcert": "/ca.pem",
        "connect_timeout": 2,
        "keepalives_idle": 20,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
    }
    assert database(URL)["OPTIONS"]["connect_timeout"] == 5
    slow = database(f"{URL}?tcp_user_timeout=90000&keepalives_idle=60")["OPTIONS"]
    assert (slow["tcp_user_timeout"], slow["keepalives_idle"]) == (90_000, 60)


def test_the_web_adds_its_limit_to_the_options_of_the_address() -> None:
    found = database(f"{URL}?options=-c%20search_path%3Dyard")
    suit_web(found)
    assert found["OPTIONS"]["options"] == "-c lock_timeout=8s -c search_path=yard"
    assert found["OPTIONS"]["pool"]["max_size"] == 8
    embedded = database("sqlite:////tmp/x.sqlite3")
    suit_web(embedded)
    assert "pool" not in embedded["OPTIONS"]


@pytest.mark.parametrize("url", ["mysql://u:canary@h/n", "carrier-pigeon://u:canary@h"])
def test_another_server_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(EnvError, match="DATABASE_URL") as told:
        database(url)
    assert "canary" not in str(told.value)
