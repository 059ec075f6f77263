"""Compose: its files are valid, and every process is there with what it needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from crawlyard.units import box
from tests.deploy.compose_files import copy_of_deploy, init, services

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        shutil.which("docker-compose") is None,
        reason="no docker-compose on PATH (apt-get install docker-compose)",
    ),
]

STORES = {"postgres", "redis", "rabbitmq", "mongo", "mongo-users", "elasticsearch"}
# One-shots end, and have nothing to be asked.
ONE_SHOTS = {"migrate", "mongo-users"}
SOCKET = "/var/run/docker.sock"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_deploy(tmp_path_factory.mktemp("compose"))


@pytest.fixture(scope="module")
def everything(folder: Path) -> dict[str, Any]:
    return services(folder)


def commands() -> set[str]:
    """What one box runs, as command and queue."""
    units = box(host="x", port=1, agents=1, objects=("x", 1))
    return {_essence(list(unit.argv[2:])) for unit in units}


def _essence(argv: list[str]) -> str:
    queue = argv[argv.index("--queues") + 1] if "--queues" in argv else ""
    return f"{argv[0]} {queue}".strip()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_process_of_a_box_is_there(everything: dict[str, Any]) -> None:
    ours = {
        name: one["command"]
        for name, one in everything.items()
        if name not in {*STORES, "nginx", "migrate"}
    }
    assert {_essence(command) for command in ours.values()} == commands()
    assert {"web1", "web2", "nginx", "migrate"} | STORES <= set(everything)


def test_every_service_has_limits_a_check_and_comes_back(everything: dict[str, Any]) -> None:
    for name, one in everything.items():
        if name in ONE_SHOTS:
            assert one["restart"] == "no"
            continue
        assert one["restart"] == "unless-stopped", name
        assert one["healthcheck"]["test"], name
        assert one["mem_limit"], name
        assert one["cpus"], name
        assert "no-new-privileges:true" in one["security_opt"], name


def test_ours_have_no_rights_and_no_secret_in_their_environment(
    folder: Path, everything: dict[str, Any]
) -> None:
    known = {path.read_text().strip() for path in (folder / "secrets").rglob("*") if path.is_file()}
    for name, one in everything.items():
        if name in STORES:
            continue
        assert one["read_only"] is True, name
        assert one["cap_drop"] == ["ALL"], name
        assert not one.get("privileged"), name
        shown = json.dumps(one)
        assert [value for value in known if value in shown] == [], name


def test_only_who_runs_spiders_may_make_accounts_of_the_broker(everything: dict[str, Any]) -> None:
    users = {name for name, one in everything.items() if "/management:" in str(one.get("volumes"))}
    assert users == {"runner"}


def test_only_who_builds_and_who_runs_may_use_the_engine(everything: dict[str, Any]) -> None:
    users = {name for name, one in everything.items() if SOCKET in str(one.get("volumes", ""))}
    assert users == {"builds", "runner"}


def test_an_agent_knows_the_broker_alone(folder: Path, everything: dict[str, Any]) -> None:
    agent = everything["agent"]
    mounted = [Path(one.split(":")[0]) for one in agent["volumes"]]
    assert mounted == [folder / "secrets" / "agent"]
    assert [path.name for path in mounted[0].iterdir()] == ["broker_url"]
    assert not [name for name in agent["environment"] if "DATABASE" in name or "SECRET" in name]


def test_it_is_valid_without_the_stores(folder: Path) -> None:
    assert STORES.isdisjoint(services(folder, "-f", "compose.yaml"))


def test_init_changes_nothing_that_is_there_and_lets_nobody_in(folder: Path) -> None:
    before = contents(folder / "secrets")
    settings = (folder / ".env").read_bytes()
    init(folder)
    assert contents(folder / "secrets") == before
    assert (folder / ".env").read_bytes() == settings
    assert (folder / "secrets").stat().st_mode & 0o077 == 0
    assert (folder / ".env").stat().st_mode & 0o077 == 0
