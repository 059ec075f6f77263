"""A bad setting is one clear line and exit status 2, for every command that reads it."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.daemon_processes import ROOT, Daemons

pytestmark = pytest.mark.slow("thirty processes that refuse to start")

DAEMONS = ["run_center", "run_worker", "run_beat", "run_runner", "run_statistics", "run_agent"]
DAEMONS += ["run_router", "run_collector", "run_monitor"]


@pytest.fixture
def daemons(tmp_path: Path) -> Daemons:
    return Daemons(tmp_path)


def refused(daemons: Daemons, *arguments: str, **environment: str) -> str:
    done = daemons.manage(*arguments, status=2, **environment)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    return lines[0]


@pytest.mark.parametrize("command", [*DAEMONS, "up"])
def test_a_wrong_broker_address_is_named(daemons: Daemons, command: str) -> None:
    daemons.migrate()
    line = refused(daemons, command, BROKER_URL="carrier-pigeon://x")
    assert "BROKER_URL" in line
    assert "carrier-pigeon" in line


def test_several_brokers_are_refused(daemons: Daemons) -> None:
    daemons.migrate()
    line = refused(daemons, "run_center", BROKER_URL="amqp://u:canary@a:5672,b:5672/v")
    assert "broker URL names several hosts" in line
    assert "canary" not in line


def test_a_broker_that_is_not_there_is_named(daemons: Daemons) -> None:
    daemons.migrate()
    line = refused(daemons, "up", "--port", "0", BROKER_URL="amqp://guest:secret@127.0.0.1:9/")
    assert "BROKER_URL" in line
    assert "127.0.0.1:9" in line
    assert "secret" not in line


@pytest.mark.services
def test_a_wrong_broker_password_is_named_and_not_shown(daemons: Daemons) -> None:
    daemons.migrate()
    line = refused(daemons, "run_center", BROKER_URL="amqp://guest:canary@127.0.0.1:5672/")
    assert "BROKER_URL" in line
    assert "canary" not in line


def test_an_unmigrated_database_says_what_to_run(daemons: Daemons) -> None:
    assert "manage.py migrate" in refused(daemons, "run_center")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("DATABASE_URL", "oracle://x", "DATABASE_URL"),
        ("DEBUG", "perhaps", "DEBUG"),
        ("LOG_LEVEL", "LOUD", "LOG_LEVEL"),
        ("ALLOWED_HOSTS", "*", "ALLOWED_HOSTS"),
        ("TIME_ZONE", "Mars/Base", "TIME_ZONE"),
        ("REDIS_URL", "http://x", "REDIS_URL"),
        ("REDIS_URL", "redis://:p,w@a,b/0", "REDIS_URL: names several hosts"),
        ("DATABASE_URL", "postgresql://u:p@a:5432,b:5432/n", "DATABASE_URL: names several hosts"),
        ("DATABASE_URL", "postgresql://u:p@/n?host=a,b", "DATABASE_URL: names several hosts"),
        ("SECRETBOX_KEYS", "short", "SECRETBOX_KEYS"),
        ("SECRET_KEY", "changeme", "SECRET_KEY"),
        ("SECRET_KEY", "a" * 60, "SECRET_KEY"),
        ("SECRET_KEY", "django-insecure-" + "0123456789abcdef" * 4, "SECRET_KEY"),
    ],
)
def test_a_bad_value_names_its_setting(daemons: Daemons, name: str, value: str, told: str) -> None:
    assert told in refused(daemons, "run_center", **{name: value})


def test_a_database_that_does_not_answer_is_named(daemons: Daemons) -> None:
    line = refused(daemons, "migrate", DATABASE_URL="postgresql://u:canary@127.0.0.1:9/x")
    assert "DATABASE_URL" in line
    assert "canary" not in line


def test_a_data_folder_that_cannot_be_made_is_named(daemons: Daemons, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = refused(daemons, "up", CRAWLYARD_DATA=str(tmp_path / "file" / "data"))
    assert line.startswith("CRAWLYARD_DATA: ")


def test_no_write_permission_on_the_data_folder_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o555)
    prefix: list[str] = []
    if os.getuid() == 0:
        # Root may write anywhere, unless it is somebody else's folder and root gives this up.
        os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    done = subprocess.run(
        [*prefix, sys.executable, str(ROOT / "manage.py"), "demo", "--port", "0"],
        env={"CRAWLYARD_DEMO_DATA": str(folder), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert f"cannot write to the data folder {folder}" in done.stderr
    assert list(folder.iterdir()) == []


def test_a_python_without_the_requirements_is_told_where_they_are() -> None:
    # -S leaves out site-packages, as the system's own Python would.
    done = subprocess.run(
        [sys.executable, "-S", str(ROOT / "manage.py"), "doctor"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "make install" in done.stderr
    assert ".venv/bin/python manage.py" in done.stderr
