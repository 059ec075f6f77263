"""Runs in a container whose network reaches nothing but the broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
import pytest

from tests.yardkit.broker_proxy import Proxy
from tests.yardscrapy.scrapy_platform import PROJECTS, ScrapyPlatform
from tests.yardspider.sites import HTML, serve

pytestmark = [
    pytest.mark.docker,
    pytest.mark.services,
    pytest.mark.timeout(600),
    pytest.mark.covers("SC.4"),
]

PAGES = dict.fromkeys(("/", "/a", "/b"), (200, HTML, b"<title>a page</title>"))


@dataclass
class ClosedNetwork:
    """Containers in a network without a way out; the broker is at its gateway."""

    engine: docker.DockerClient
    platform: ScrapyPlatform
    image: str
    name: str
    broker_url: str

    def crawl(self, folder: Path, *words: str) -> tuple[dict[str, Any], list[Any], str]:
        """Run ``yardscrapy crawl`` in a container; its ``exit.json``, items and log."""
        folder.mkdir()
        folder.chmod(0o777)
        command = ["python3", "-m", "yardscrapy", "crawl", *words, "-o", "/out/items.jsonl"]
        of_run = self.platform.run(BROKER_URL=self.broker_url, CRAWLYARD_RUN_DIR="/out")
        container = self.engine.containers.run(
            self.image,
            command,
            network=self.name,
            environment=of_run,
            volumes={
                str(PROJECTS / "shop"): {"bind": "/project", "mode": "ro"},
                str(folder): {"bind": "/out", "mode": "rw"},
            },
            working_dir="/project",
            detach=True,
        )
        try:
            container.wait(timeout=120)
            log = container.logs().decode()
        finally:
            container.remove(force=True)
        assert (folder / "exit.json").exists(), log
        items = folder / "items.jsonl"
        lines = items.read_text().splitlines() if items.exists() else []
        left = json.loads((folder / "exit.json").read_text())
        return left, [json.loads(line) for line in lines], log


@pytest.fixture(scope="module")
def closed(
    docker_engine: docker.DockerClient,
    scrapy_image: str,
    rabbit_vhost: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ClosedNetwork]:
    folder = tmp_path_factory.mktemp("closed")
    platform = ScrapyPlatform(folder, broker_url=rabbit_vhost)
    network = docker_engine.networks.create(f"crawlyard-{folder.name}", internal=True)
    try:
        network.reload()
        gateway = network.attrs["IPAM"]["Config"][0]["Gateway"]
        broker = urlsplit(rabbit_vhost)
        with Proxy(broker.hostname or "", broker.port or 5672, own_host=gateway) as proxy:
            url = proxy.address(rabbit_vhost)
            yield ClosedNetwork(docker_engine, platform, scrapy_image, network.name, url)
    finally:
        network.remove()
        platform.close()


def test_a_run_succeeds_though_its_container_reaches_only_the_broker(
    closed: ClosedNetwork, tmp_path: Path
) -> None:
    with serve(PAGES) as site:
        words = ["each", "-a", f"site={site.url}", "-a", "paths=/a /b"]
        left, items, log = closed.crawl(tmp_path / "out", *words)
        assert sorted(site.paths) == ["/a", "/b"], log
    assert left["state"] == "exited", log
    assert [item["status"] for item in items] == [200, 200]
    assert not any("direct_count" in name for name in left["scrapy"])


@pytest.fixture
def far_server(closed: ClosedNetwork) -> Iterator[tuple[str, Any]]:
    """Address of a web server in the network that containers are in otherwise; its container.

    Not on this machine itself: its own addresses are reached from every network of containers.
    """
    command = ["python3", "-m", "http.server", "8000"]
    container = closed.engine.containers.run(closed.image, command, network="bridge", detach=True)
    try:
        container.reload()
        host = container.attrs["NetworkSettings"]["Networks"]["bridge"]["IPAddress"]
        yield f"http://{host}:8000/", container
    finally:
        container.remove(force=True)


def test_a_download_past_the_agents_fails_and_the_run_says_so(
    closed: ClosedNetwork, far_server: tuple[str, Any], tmp_path: Path
) -> None:
    past, container = far_server
    # Where containers have a way out, it works; the server may be starting.
    fetch = (
        "import time, urllib.request\n"
        "for attempt in range(50):\n"
        f"    try: urllib.request.urlopen({past!r}, timeout=5); break\n"
        "    except OSError: time.sleep(0.1)\n"
    )
    closed.engine.containers.run(
        closed.image, ["python3", "-c", fetch], network="bridge", remove=True
    )
    with serve(PAGES) as site:
        words = ["direct", "-a", f"site={site.url}", "-a", f"past={past}"]
        left, _, log = closed.crawl(tmp_path / "out", *words)
        assert site.paths == ["/"], log
    assert left["state"] == "failed", log
    assert "no request succeeded: URLError" in left["reason"], left
    assert container.logs().count(b"GET / ") == 1


def test_an_allowed_scheme_goes_past_the_agents_and_is_counted(
    closed: ClosedNetwork, tmp_path: Path
) -> None:
    for number, allowed in enumerate(("", "ftp")):
        words = ["each", "-a", "site=", "-a", "paths=ftp://127.0.0.9/file file:///etc/hostname"]
        left, items, log = closed.crawl(
            tmp_path / str(number), *words, "-s", f"CRAWLYARD_DIRECT_SCHEMES={allowed}"
        )
        errors = {urlsplit(item["url"]).scheme: item["error"] for item in items}
        assert errors["file"] == "scrapy.exceptions.NotSupported", log
        assert left["state"] == "failed", log
        if allowed:
            assert errors["ftp"] != "scrapy.exceptions.NotSupported"
            assert left["scrapy"]["crawlyard/direct_count/ftp"] >= 1
        else:
            assert errors["ftp"] == "scrapy.exceptions.NotSupported"
