"""An installation whose runs are containers, and a repository of spiders for it to build."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import docker

from tests.e2e.forge import deliver_github, github_push
from tests.e2e.installation import Installation
from tests.e2e.rest import Rest
from tests.plugins.git_server import GitServer, Repository
from tests.plugins.stores import lend_servers
from tests.yardspider.commands import run as run_yardspider

TAG = "stable/book-shop/1.0.0"


@contextmanager
def docker_installation(
    folder: Path, *, redis_url: str, engine: docker.DockerClient, **settings: str
) -> Iterator[Installation]:
    """PostgreSQL, RabbitMQ, Redis, and containers in the machine's own network."""
    with lend_servers(redis_url) as stores, ExitStack() as stack:
        settings |= {"RUNNER_URL": "docker://", "RUN_NETWORK": "host", "BUILD_NETWORK": "none"}
        installation = Installation(folder, stores, **settings)
        stack.callback(_remove_containers, engine, installation)
        with installation:
            installation.start()
            yield installation


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


def make_project(
    rest: Rest, repository: Repository, git_server: GitServer, base_image: str
) -> dict[str, Any]:
    """Over REST; the password goes in and never comes out."""
    project: dict[str, Any] = rest.make(
        "/projects",
        name="Book shop",
        slug="book-shop",
        git_url=repository.url,
        git_username=git_server.username,
        git_password=git_server.password,
        build_arguments={"BASE_IMAGE": base_image} if base_image else {},
        allowed_networks=["127.0.0.0/8"],
    )
    assert "git_password" not in project, project
    assert git_server.password not in str(rest.get(f"/projects/{project['id']}"))
    found = rest.act(f"/projects/{project['id']}/test-connection")
    assert (found["count"], found["fitting"]) == (0, 0), found
    return project


def build_by_webhook(
    rest: Rest, project: dict[str, Any], commit: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A signed push of the tag, sent twice: one build, and its image."""
    assert rest.get(f"/projects/{project['id']}/webhook")["secret"] is None
    hook = rest.act(f"/projects/{project['id']}/webhook/reveal")
    address, secret = hook["address"], hook["secret"]
    assert address == f"{rest.address}/webhooks/{project['slug']}/"
    payload = github_push(TAG, commit)
    status, answer = deliver_github(address, "wrong secret", payload, delivery="one")
    assert (status, rest.rows("/builds")) == (401, []), answer
    for _again in range(2):
        status, answer = deliver_github(address, secret, payload, delivery="one")
        assert status == 202, answer
    (build,) = rest.rows("/builds", project=project["id"])
    assert build["tag"] == TAG

    def succeeded() -> dict[str, Any] | None:
        row: dict[str, Any] = rest.get(f"/builds/{build['id']}")
        assert row["state"] in ("queued", "running", "succeeded"), (row, rest.explain())
        return row if row["state"] == "succeeded" else None

    build = rest.until(succeeded, "the build", 300)
    assert build["commit"] == commit
    (image,) = rest.rows("/images", project=project["id"])
    return build, image
