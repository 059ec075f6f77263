"""The image: who it runs as, what it holds, and that its web works with real servers."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator

import docker
import pytest
from docker.models.containers import Container

from tests.plugins.stores import lend_postgres_database

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

# As deploy/ runs it everywhere.
HARDENED = {
    "network_mode": "host",
    "read_only": True,
    "tmpfs": {"/tmp": "size=64m,mode=1777", "/data": "size=64m,uid=10001,gid=10001,mode=700"},
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "mem_limit": "512m",
    "pids_limit": 256,
    "labels": {"crawlyard.test": "1"},
}


def free_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def running(
    engine: docker.DockerClient, image: str, *command: str, **environment: str
) -> Iterator[Container]:
    container = engine.containers.run(
        image, list(command), detach=True, environment=environment, **HARDENED
    )
    try:
        yield container
    finally:
        container.remove(force=True)


def ended(
    engine: docker.DockerClient, image: str, *command: str, **environment: str
) -> tuple[int, str]:
    with running(engine, image, *command, **environment) as container:
        status = container.wait(timeout=120)["StatusCode"]
        return int(status), container.logs().decode()


def until_healthy(container: Container) -> None:
    deadline = time.monotonic() + 120
    while True:
        container.reload()
        health = container.attrs["State"]["Health"]
        if health["Status"] == "healthy":
            return
        assert container.status == "running", container.logs().decode()
        assert time.monotonic() < deadline, (health, container.logs().decode())
        time.sleep(0.3)


def test_it_runs_as_nobody_in_particular_and_says_what_it_is(
    docker_engine: docker.DockerClient, product_image: str
) -> None:
    config = docker_engine.images.get(product_image).attrs["Config"]
    assert config["User"] == "10001:10001"
    assert config["Labels"]["org.opencontainers.image.version"] == "0.1.0"
    assert len(config["Labels"]["org.opencontainers.image.revision"]) == 40
    assert config["Healthcheck"]["Test"] == ["CMD", "python3", "-m", "yardkit.alive"]
    secret = [one for one in config["Env"] if "KEY" in one or "PASSWORD" in one]
    assert secret == []


def test_it_holds_no_tests_and_no_keys(
    docker_engine: docker.DockerClient, product_image: str
) -> None:
    with running(docker_engine, product_image, "check") as container:
        assert container.wait(timeout=120)["StatusCode"] == 0, container.logs().decode()
        assert "no issues" in container.logs().decode()
    code = (
        "import os, json, importlib.metadata as m;"
        "print(json.dumps([sorted(os.listdir('/app')), m.version('crawlyard'), os.getuid()]))"
    )
    container = docker_engine.containers.run(
        product_image, ["-c", code], entrypoint=["python3"], detach=True, **HARDENED
    )
    try:
        assert container.wait(timeout=60)["StatusCode"] == 0, container.logs().decode()
        files, version, user = json.loads(container.logs())
    finally:
        container.remove(force=True)
    assert set(files) - {"__pycache__"} == {
        *("apps", "docs", "locale", "manage.py", "platform", "static", "templates")
    }
    assert (version, user) == ("0.1.0", 10001)


@pytest.mark.services
def test_it_checks_migrates_and_serves_with_real_servers(
    docker_engine: docker.DockerClient, product_image: str, redis_url: str, rabbit_vhost: str
) -> None:
    with lend_postgres_database() as database:
        stores = {
            "DATABASE_URL": database,
            "REDIS_URL": redis_url,
            "BROKER_URL": rabbit_vhost,
            "BEHIND_TLS": "1",
            "SECRET_KEY": "k3y-0f-a-test-" + "".join(map(chr, range(97, 123))),
        }
        status, said = ended(
            docker_engine, product_image, "check", "--deploy", "--fail-level=ERROR", **stores
        )
        assert status == 0, said
        status, said = ended(docker_engine, product_image, "migrate", **stores)
        assert status == 0, said
        port = str(free_port())
        command = ("run_web", "--port", port)
        with running(docker_engine, product_image, *command, **stores) as web:
            until_healthy(web)
            check = ["python3", "-m", "yardkit.alive", f"http://127.0.0.1:{port}/readyz"]
            code, said_bytes = web.exec_run(check)
            assert code == 0, said_bytes.decode() + web.logs().decode()
            began = time.monotonic()
            web.stop(timeout=20)
            assert time.monotonic() - began < 8


def test_a_bad_setting_is_one_line_and_exit_status_2(
    docker_engine: docker.DockerClient, product_image: str
) -> None:
    status, said = ended(docker_engine, product_image, "run_center", BROKER_URL="pigeon://x")
    assert status == 2
    assert said.startswith(("BROKER_URL", "DATABASE_URL"))
    assert len(said.splitlines()) == 1
