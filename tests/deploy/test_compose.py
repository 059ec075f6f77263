"""Compose: its files are valid, every process is there, and its own services work."""

from __future__ import annotations

import json
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml

from crawlyard.units import box
from tests.deploy.compose_files import compose, copy_of_deploy, init, services
from tests.deploy.test_image import free_port
from tests.plugins.stores import lend_postgres_database, lend_rabbit_vhost

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
    return {_essence(list(unit.argv[2:])) for unit in box(host="x", port=1, agents=1)}


def _essence(argv: list[str]) -> str:
    queue = argv[argv.index("--queues") + 1] if "--queues" in argv else ""
    return f"{argv[0]} {queue}".strip()


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
    known = {path.read_text().strip() for path in (folder / "secrets").iterdir()}
    for name, one in everything.items():
        if name in STORES:
            continue
        assert one["read_only"] is True, name
        assert one["cap_drop"] == ["ALL"], name
        assert not one.get("privileged"), name
        shown = json.dumps(one)
        assert [value for value in known if value in shown] == [], name


def test_only_who_builds_and_who_runs_may_use_the_engine(everything: dict[str, Any]) -> None:
    users = {name for name, one in everything.items() if SOCKET in str(one.get("volumes", ""))}
    assert users == {"builds", "runner"}


def test_an_agent_knows_the_broker_alone(everything: dict[str, Any]) -> None:
    agent = everything["agent"]
    assert [one["source"] for one in agent["secrets"]] == ["broker_url"]
    assert not [name for name in agent["environment"] if "DATABASE" in name or "SECRET" in name]


def test_it_is_valid_without_the_stores(folder: Path) -> None:
    assert STORES.isdisjoint(services(folder, "-f", "compose.yaml"))


def test_init_changes_nothing_that_is_there_and_lets_nobody_in(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in (folder / "secrets").iterdir()}
    settings = (folder / ".env").read_bytes()
    init(folder)
    assert {path.name: path.read_bytes() for path in (folder / "secrets").iterdir()} == before
    assert (folder / ".env").read_bytes() == settings
    assert (folder / "secrets").stat().st_mode & 0o077 == 0
    assert (folder / ".env").stat().st_mode & 0o077 == 0


# --- its own services, with real servers ----------------------------------------------------------


def beside_the_servers(
    folder: Path, image: str, database: str, broker: str, cache: str
) -> tuple[Path, list[str], dict[str, str]]:
    """The same services in the host's network, where the servers of the tests listen."""
    found = services(folder, "-f", "compose.yaml")
    found.pop("nginx")
    ports = {name: str(free_port()) for name in ("web1", "web2")}
    here = folder.parent / "own"
    (here / "secrets").mkdir(parents=True)
    values = {
        "database_url": database,
        "broker_url": broker,
        "redis_url": cache,
        "requests_url": database,
        "logs_url": database,
    }
    for secret in ("secret_key", "secretbox_keys", *values):
        text = values.get(secret) or (folder / "secrets" / secret).read_text()
        (here / "secrets" / secret).write_text(text)
    for name, one in found.items():
        one.pop("networks", None)
        one |= {"network_mode": "host", "image": image, "labels": {"crawlyard.test": "1"}}
        one.pop("hostname", None)
        # The cores are few here, and everything starts at once.
        one["healthcheck"] = {**one["healthcheck"], "interval": "8s", "timeout": "30s"}
        if name == "migrate":
            one.pop("healthcheck")
        if name in ports:
            one["command"] += ["--port", ports[name]]
            one["healthcheck"]["test"][-1] = f"http://127.0.0.1:{ports[name]}/readyz"
        one["volumes"] = [each for each in one.get("volumes", []) if SOCKET in str(each)]
        if name in ("router", "fetcher", "builds", "runner", "agent"):
            one["tmpfs"] = ["/tmp", "/data:mode=700,uid=10001,gid=10001"]
        if name == "runner":
            one["environment"]["CRAWLYARD_DATA"] = "/data"
    secret_files = {
        one: {"file": f"./secrets/{one}"} for one in ("secret_key", "secretbox_keys", *values)
    }
    text = yaml.safe_dump({"version": "3.9", "services": found, "secrets": secret_files})
    (here / "compose.yaml").write_text(text)
    return here, [name for name in found if name != "migrate"], ports


@pytest.mark.services
def test_its_own_services_start_and_are_healthy(
    folder: Path, docker_engine: docker.DockerClient, product_image: str, redis_url: str
) -> None:
    with lend_postgres_database() as database, lend_rabbit_vhost() as broker:
        here, names, _ports = beside_the_servers(folder, product_image, database, broker, redis_url)
        project = ("--project-name", f"crawlyard-test-{secrets.token_hex(3)}")
        try:
            done = compose(here, *project, "up", "-d", seconds=300)
            assert done.returncode == 0, done.stdout + done.stderr
            wanted, states = set(names), {}
            deadline = time.monotonic() + 400
            while states != dict.fromkeys(wanted, "healthy"):
                found = docker_engine.containers.list(
                    all=True, filters={"label": f"com.docker.compose.project={project[1]}"}
                )
                states = {
                    one.labels["com.docker.compose.service"]: one.attrs["State"]
                    .get("Health", {})
                    .get("Status", one.status)
                    for one in found
                    if one.labels["com.docker.compose.service"] != "migrate"
                }
                if time.monotonic() > deadline:
                    logs = compose(here, *project, "logs", "--tail", "5")
                    pytest.fail(f"{states}\n{logs.stdout}")
                time.sleep(1)
        finally:
            compose(here, *project, "down", "-v", "--timeout", "10", seconds=200)
