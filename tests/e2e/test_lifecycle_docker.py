"""From a git push to a running container and its end, with real parts all the way.

PostgreSQL, RabbitMQ, Redis, a Docker Engine, a git server; every daemon a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.docker_installation import (
    TAG,
    build_by_webhook,
    containers_of,
    docker_installation,
    make_project,
    push_book_shop,
)
from tests.e2e.installation import Installation
from tests.e2e.lifecycle import SPEED, Life, is_planned_no_more
from tests.plugins.git_server import GitServer, Repository

pytestmark = [pytest.mark.services, pytest.mark.docker, pytest.mark.timeout(600)]


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
