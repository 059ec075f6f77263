"""From a git push to a running container and its end, with real parts all the way.

PostgreSQL, RabbitMQ, Redis, a Docker Engine, a git server; every daemon a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.docker_installation import (
    TAG,
    containers_of,
    docker_installation,
    push_book_shop,
)
from tests.e2e.forge import deliver_github, github_push
from tests.e2e.installation import Installation
from tests.e2e.lifecycle import SPEED, Life, is_planned_no_more
from tests.e2e.rest import Rest
from tests.plugins.git_server import GitServer, Repository

pytestmark = [
    pytest.mark.services,
    pytest.mark.docker,
    pytest.mark.timeout(600),
]


@pytest.fixture
def installation(
    tmp_path: Path, redis_url: str, docker_engine: docker.DockerClient
) -> Iterator[Installation]:
    with docker_installation(
        tmp_path / "installation", redis_url=redis_url, engine=docker_engine
    ) as installation:
        yield installation


@pytest.fixture
def repository(git_server: GitServer, tmp_path: Path) -> Repository:
    return push_book_shop(git_server, tmp_path)


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
        build_arguments={"BASE_IMAGE": base_image},
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


@pytest.mark.covers("S1.1", "S1.2", "S1.3", "S1.4", "S1.8", "S1.9", "S1.10", "S1.17", "S1.18")
def test_from_a_git_push_to_a_container_and_its_end(
    installation: Installation,
    repository: Repository,
    git_server: GitServer,
    spider_image: str,
    docker_engine: docker.DockerClient,
) -> None:
    rest = installation.rest
    project = make_project(rest, repository, git_server, spider_image)
    commit = repository.tag(TAG)
    build, image = build_by_webhook(rest, project, commit)
    assert image["commit"] == commit
    assert docker_engine.images.get(image["digest"]).labels["crawlyard.test"] == "1"
    log = "\n".join(line["text"] for line in rest.rows(f"/builds/{build['id']}/logs", limit=200))
    assert "Successfully built" in log
    assert git_server.password not in log
    with CountingSite(tree(3000)) as site:
        job = rest.make(
            "/jobs",
            project=project["id"],
            name="the whole shop",
            image=image["id"],
            spider="book_shop:BookShop",
            arguments={"url": site.url},
            cron="* * * * *",
            overlap="skip",
            speed=SPEED,
        )["id"]
        rest.until(installation.agents_serve, "agents")
        life = Life(rest, site, job)
        life.is_started_by_its_cron()
        (container,) = containers_of(docker_engine, installation, ended=False)
        assert container.labels["crawlyard.run"] == str(life.run)
        row = life.look()
        assert row["image_digest"] == image["digest"] == container.image.id, row
        life.is_paused()
        life.is_resumed()
        life.is_restarted()
        (second,) = containers_of(docker_engine, installation, ended=False)
        assert (
            second.id != container.id
            or second.attrs["State"]["StartedAt"] != (container.attrs["State"]["StartedAt"])
        )
        life.is_stopped()
        assert containers_of(docker_engine, installation, ended=False) == []
        life.has_told_its_story()
        is_planned_no_more(rest, job)
    assert installation.tracebacks() == {}
