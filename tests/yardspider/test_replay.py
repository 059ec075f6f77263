"""``yardspider run --replay``: the items of the recorded run, and no connection."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.yardkit.recordings.writers import WarcRecorder
from tests.yardspider.commands import environment
from tests.yardspider.sites import HTML, serve
from yardspider import Request, Response, Spider, SpiderSettings
from yardspider.testing import recorded, run_spider

pytestmark = pytest.mark.covers("OB.5")

SHOP = "https://shop.example"
SPIDER = """
from yardspider import Request, Spider

class Shop(Spider):
    def start(self):
        yield Request(self.arguments["url"])
    def parse(self, response):
        for url in response.links():
            yield Request(url)
        yield {"path": response.url.partition("//")[2].partition("/")[2], "text": response.text}
"""
# Prints each connection and look-up of the process.
AUDIT = """
import sys
def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        sys.stdout.write(f"socket {event} {arguments}\\n")
sys.addaudithook(hook)
from yardspider.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "shop.py").write_text(SPIDER)
    return subprocess.run(
        [sys.executable, "-c", AUDIT, "run", "shop:Shop", *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def pages(count: int) -> dict[str, str]:
    """A tree of pages by path."""
    found = {}
    for number in range(count):
        links = (f"<a href=/{n}>x</a>" for n in (2 * number + 1, 2 * number + 2) if n < count)
        found[f"/{number}"] = f"<p>{number}</p>" + "".join(links)
    return found


def items_of(path: Path) -> list[str]:
    return sorted(path.read_text().splitlines())


@pytest.mark.slow("starts interpreters")
def test_items_equal_those_of_the_recorded_run(tmp_path: Path) -> None:
    tree = pages(40)
    warc = WarcRecorder(tmp_path / "shop.warc.gz")
    for path, text in tree.items():
        warc.add(SHOP + path, text.encode())
    with serve({path: (200, HTML, text.encode()) for path, text in tree.items()}) as site:
        words = ["--argument", f"url={site.url}/0", "--set", "speed=0"]
        live = run(tmp_path, "--local", *words, "--output", "live.jsonl")
    assert live.returncode == 0, live.stderr
    assert "socket.connect" in live.stdout
    words = ["--argument", f"url={SHOP}/0", "--replay", "shop.warc.gz"]
    again = run(tmp_path, *words, "--output", "again.jsonl")
    assert again.returncode == 0, again.stderr
    assert "socket" not in again.stdout
    # Forty pages at the default of one a second would take forty seconds.
    assert "40 pages" in again.stdout
    replayed = items_of(tmp_path / "again.jsonl")
    assert replayed == [line.replace(site.url, SHOP) for line in items_of(tmp_path / "live.jsonl")]


@pytest.mark.slow("starts interpreters")
def test_what_is_not_recorded(tmp_path: Path) -> None:
    host = tmp_path / "recording" / "shop.example"
    host.mkdir(parents=True)
    with serve({"/1": (200, HTML, b"live")}) as site:
        (host / "index.html").write_text(f"<a href={site.url}/1>x</a>")
        words = ["--argument", f"url={SHOP}/", "--replay", "recording", "--output"]
        failing = run(tmp_path, *words, "failing.jsonl")
        assert site.paths == []
        fetching = run(tmp_path, *words, "fetching.jsonl", "--replay-missing", "fetch")
    assert f"failed: {site.url}/1: not_recorded: GET {site.url}/1 is not recorded" in failing.stdout
    assert len(items_of(tmp_path / "failing.jsonl")) == 1
    assert fetching.returncode == 0, fetching.stderr
    assert json.loads(items_of(tmp_path / "fetching.jsonl")[-1])["text"] == "live"
    missing = run(tmp_path, "--replay", "nowhere")
    assert missing.returncode == 2
    assert "--replay nowhere: there is no such file or folder" in missing.stderr


class Shop(Spider):
    """Follows links."""

    start_urls = (f"{SHOP}/",)
    settings = SpiderSettings(speed=1)

    def parse(self, response: Response) -> object:
        yield {"text": response.css("h1::text").get(), "type": response.headers["content-type"]}
        for url in response.links():
            yield Request(url)


def test_tests_of_spiders_take_recordings(tmp_path: Path) -> None:
    host = tmp_path / "shop.example"
    host.mkdir()
    (host / "index.html").write_text("<h1>Home</h1><a href=/1>1</a><a href=/2>2</a>")
    (host / "1.html").write_text("<h1>One</h1>")
    result = run_spider(Shop, recorded(tmp_path))
    assert [item["text"] for item in result.items] == ["Home", "One"]
    assert result.items[0]["type"] == "text/html"
    assert [note.reason for note in result.failures] == [
        f"not_recorded: GET {SHOP}/2 is not recorded"
    ]
