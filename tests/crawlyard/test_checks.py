"""What is unsafe off a laptop stops a process, and says how to mend it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage, Tags, run_checks

from apps.runtime.checks import START_TAG
from crawlyard.settings.base import env
from yardkit.env import Setting

HERE = {
    "DATABASE_URL": "sqlite:////x",
    "SEEDS_URL": "rocksdb:///x",
    "LOGS_URL": "sqlite:////x",
    "RECORDS_URL": "sqlite:////x",
    "REDIS_URL": "",
    "BROKER_URL": "sqlite:////x",
    "RUN_BROKER_URL": "sqlite:////x",
    "REQUESTS_NODES": {"default": "sqlite:////x"},
}


@pytest.fixture(autouse=True)
def at_home(settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installation on this host, with a home and an environment that prove nothing."""
    for name, value in HERE.items():
        setattr(settings, name, value)
    settings.DATA_DIR = tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGPASSWORD", "PGPASSFILE", "PGSSLCERT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SECRET_KEY", "SECRETBOX_KEYS"):
        monkeypatch.setitem(env.settings, name, Setting(name, "secret", "", True, True))


def problems(tag: str = START_TAG) -> list[CheckMessage]:
    found = [
        each for each in run_checks(tags=[tag]) if str(each.id).startswith(("crawlyard", "ru"))
    ]
    assert all(each.hint for each in found), "each says how to mend it"
    return found


def ids(tag: str = START_TAG) -> list[str]:
    return [str(each.id) for each in problems(tag)]


@pytest.mark.parametrize(
    ("name", "url", "refused"),
    [
        ("DATABASE_URL", "postgresql://u@db.internal/x", True),
        ("DATABASE_URL", "postgresql://u:canary@db.internal/x", False),
        ("DATABASE_URL", "postgresql://u@127.0.0.1/x", False),
        ("DATABASE_URL", "postgresql://u@localhost,db.internal/x", True),
        ("DATABASE_URL", "postgresql:///x?host=/run/postgresql", False),
        ("DATABASE_URL", "postgresql://u@db.internal/x?sslcert=/c.pem", False),
        ("SEEDS_URL", "postgres://u@10.0.0.5/x", True),
        ("LOGS_URL", "postgresql://u@10.0.0.5/x", True),
        ("RECORDS_URL", "postgresql://u@10.0.0.5/x", True),
        ("REDIS_URL", "redis://cache.internal:6379/0", True),
        ("REDIS_URL", "redis://:canary@cache.internal:6379/0", False),
        ("REDIS_URL", "rediss://cache.internal/0?ssl_certfile=/c.pem", False),
        ("REDIS_URL", "redis://[::1]:6379/0", False),
        ("REDIS_URL", "unix:///run/redis.sock", False),
        ("REQUESTS_NODES", {"default": "mongodb://a:1,b:2/?replicaSet=r"}, True),
        ("REQUESTS_NODES", {"default": "mongodb://u:canary@a:1,b:2/?replicaSet=r"}, False),
        ("REQUESTS_NODES", {"default": "sqlite:////x", "n2": "postgresql://u@h/x"}, True),
    ],
)
def test_a_store_on_another_host_needs_a_password(
    settings: Any, name: str, url: Any, refused: bool
) -> None:
    setattr(settings, name, url)
    found = problems()
    assert [each.id for each in found] == (["crawlyard.E002"] if refused else [])
    assert not refused or name.removesuffix("_NODES") in found[0].msg
    assert "canary" not in str(found)


@pytest.mark.parametrize("proof", ["PGPASSWORD", "PGPASSFILE", "pgpass"])
def test_a_password_may_come_from_elsewhere(
    settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, proof: str
) -> None:
    settings.DATABASE_URL = "postgresql://u@db.internal/x"
    if proof == "pgpass":
        (tmp_path / ".pgpass").touch()
    else:
        monkeypatch.setenv(proof, "x")
    assert ids() == []


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, False),
        ({"BEHIND_TLS": True}, True),
        ({"REDIS_URL": "redis://:p@cache.internal/0"}, True),
        ({"BROKER_URL": "amqp://u:p@127.0.0.1/"}, False),
        ({"BROKER_URL": "amqp://u:p@[::1]:5672/"}, False),
        ({"BROKER_URL": "amqp://u:p@rabbit.internal/"}, True),
    ],
)
def test_debug_is_for_a_laptop(settings: Any, changes: dict[str, Any], refused: bool) -> None:
    settings.DEBUG = True
    for name, value in changes.items():
        setattr(settings, name, value)
    assert ids() == (["crawlyard.E001"] if refused else [])


@pytest.mark.parametrize("name", ["SECRET_KEY", "SECRETBOX_KEYS"])
def test_a_cluster_shares_its_keys(
    settings: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(env.settings, name, Setting(name, "secret", "", True, False))
    assert ids() == []
    settings.DATABASE_URL = "postgresql://u:p@db.internal/x"
    (found,) = problems()
    assert found.id == "crawlyard.E003"
    assert name in found.msg


@pytest.mark.parametrize("name", ["secret_key", "secretbox_key"])
@pytest.mark.parametrize(("mode", "refused"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_key_that_others_can_read(tmp_path: Path, name: str, mode: int, refused: bool) -> None:
    (tmp_path / name).touch()
    (tmp_path / name).chmod(mode)
    assert ids() == (["crawlyard.E004"] if refused else [])


def test_https_wants_secure_cookies(settings: Any) -> None:
    settings.PUBLIC_URL = "https://yard.example.org"
    assert ids(Tags.security) == ["crawlyard.E005"]
    settings.BEHIND_TLS = True
    assert ids(Tags.security) == []
    settings.PUBLIC_URL, settings.BEHIND_TLS = "http://127.0.0.1:8000", False
    assert ids(Tags.security) == []


@pytest.mark.parametrize("name", ["BROKER_URL", "RUN_BROKER_URL", "BROKER_MANAGEMENT_URL"])
def test_guest_stays_on_this_host_in_every_setting(settings: Any, name: str) -> None:
    scheme = "http" if "MANAGEMENT" in name else "amqp"
    setattr(settings, name, f"{scheme}://guest:guest@rabbit.internal/")
    (found,) = (each for each in problems() if each.id == "runtime.E001")
    assert name in found.msg
