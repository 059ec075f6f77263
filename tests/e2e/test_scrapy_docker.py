"""A fresh Scrapy project: pushed, built by the recipe, saved as a job, run in a container, kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.accounting import reference
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.docker_installation import build_by_webhook, docker_installation, make_project
from tests.plugins.git_server import GitServer

pytestmark = [pytest.mark.services, pytest.mark.docker, pytest.mark.timeout(600)]

SPIDER = """
import scrapy


class Pages(scrapy.Spider):
    name = "pages"

    def __init__(self, url: str, pages: int = 1000, **arguments):
        super().__init__(**arguments)
        self.start_urls, self.pages = [url], pages

    def parse(self, response):
        assert isinstance(self.pages, int)
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield from response.follow_all(css="a:not([href^=mailto])")
"""
# The template of a new project waits a second between two pages.
PAGES = 12


@pytest.mark.covers("SC.1", "SC.5", "SC.6")
def test_a_new_scrapy_project_runs_in_a_container_unchanged(
    tmp_path: Path,
    redis_url: str,
    docker_engine: docker.DockerClient,
    git_server: GitServer,
    scrapy_image: str,
) -> None:
    repository = git_server.make_repository(f"tutorial-{tmp_path.name}")
    start = [sys.executable, "-m", "scrapy", "startproject", "tutorial", str(repository.work)]
    subprocess.run(start, cwd=tmp_path, check=True, capture_output=True)
    files = {"tutorial/spiders/pages.py": SPIDER, "requirements.txt": "scrapy\n"}
    repository.commit(files, "begin")
    with docker_installation(
        tmp_path / "installation",
        redis_url=redis_url,
        engine=docker_engine,
        SCRAPY_BASE_IMAGE=scrapy_image,
    ) as installation:
        rest = installation.rest
        project = make_project(rest, repository, git_server, "")
        _, image = build_by_webhook(rest, project, repository.tag("stable/book-shop/1.0.0"))
        described = rest.get(f"/images/{image['id']}/description")
        (spider,) = described["spiders"]
        assert [argument["name"] for argument in spider["arguments"]] == ["url", "pages"]
        rest.until(installation.agents_serve, "agents")
        with CountingSite(tree(PAGES)) as site:
            pages = reference(site, delay_seconds=0.0).pages
            fields = {
                "project": project["id"],
                "image": image["id"],
                "arguments": {"url": site.url, "pages": PAGES},
            }
            rest.call("POST", "/jobs", {**fields, "name": "bad", "spider": "page"}, status=400)
            job = rest.make("/jobs", **fields, name="good", spider="pages")
            run = rest.make(f"/jobs/{job['id']}/start")["id"]
            row, counters = rest.ended(run)
            assert row["state"] == "exited", (row, installation.explain())
            assert (counters["success"], counters["failed"]) == (len(pages), 0)

        def stored() -> list[dict[str, Any]] | None:
            items = rest.rows(f"/runs/{run}/items", limit=1000)
            return items if len(items) == len(pages) else None

        items = rest.until(stored, "the items", 60)
        assert {row["item"]["url"] for row in items} == pages
    assert installation.tracebacks() == {}
