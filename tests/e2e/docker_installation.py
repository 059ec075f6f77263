"""An installation whose runs are containers, and a repository of spiders for it to build."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker

from tests.e2e.installation import Installation
from tests.plugins.git_server import GitServer, Repository
from tests.plugins.stores import lend_postgres_database, lend_rabbit_vhost
from tests.yardspider.commands import run as run_yardspider

TAG = "stable/book-shop/1.0.0"


@contextmanager
def docker_installation(
    folder: Path, *, redis_url: str, engine: docker.DockerClient
) -> Iterator[Installation]:
    """PostgreSQL, RabbitMQ, Redis, and containers in the machine's own network."""
    with lend_postgres_database() as database, lend_rabbit_vhost() as broker:
        stores = {"DATABASE_URL": database, "BROKER_URL": broker, "REDIS_URL": redis_url}
        installation = Installation(
            folder, stores, RUNNER_URL="docker://", RUN_NETWORK="host", BUILD_NETWORK="none"
        )
        try:
            installation.start()
            yield installation
        finally:
            installation.end()
            _remove_containers(engine, installation)


def containers_of(
    engine: docker.DockerClient, installation: Installation, *, ended: bool = True
) -> list[Any]:
    """Those of its runs; without ``ended`` only those that are alive."""
    found: list[Any] = engine.containers.list(
        all=ended, filters={"label": f"crawlyard.host={installation.name}"}
    )
    return found


def _remove_containers(engine: docker.DockerClient, installation: Installation) -> None:
    for container in containers_of(engine, installation):
        with suppress(docker.errors.APIError):
            container.remove(force=True)


def push_book_shop(git_server: GitServer, folder: Path) -> Repository:
    """What ``yardspider init`` makes, pushed to the git server."""
    repository = git_server.make_repository(f"book-shop-{folder.name}")
    made = run_yardspider(folder, "init", "book-shop", "--dir", str(repository.work))
    assert made.status == 0, made.errors
    dockerfile = (repository.work / "Dockerfile").read_text(encoding="utf-8")
    repository.commit({"Dockerfile": f'{dockerfile}\nLABEL crawlyard.test="1"\n'}, "begin")
    return repository
