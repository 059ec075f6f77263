"""Crawls of an unchanged project through broker, center and agents."""

from __future__ import annotations

import pytest

from tests.yardscrapy.scrapy_platform import ScrapyPlatform
from tests.yardspider.sites import HTML, Reply, serve

pytestmark = pytest.mark.slow("starts a center and agents")


def tree(path: str) -> Reply:
    """40 pages, each of the first 13 linking to three more."""
    number = int("0" + path.strip("/"))
    links = "".join(f"<a href=/{number * 3 + n}>x</a>" for n in (1, 2, 3)) if number < 13 else ""
    return 200, HTML, f"<title>{number}</title>{links}".encode()


def test_every_page_is_fetched_by_the_agents(platform: ScrapyPlatform, python: str) -> None:
    with serve(tree) as site:
        done = platform.crawl("pages", "-a", f"site={site.url}", python=python)
        assert done.status == 0, done.log
        assert sorted(site.paths) == sorted(["/", *(f"/{n}" for n in range(1, 40))])
    assert sorted(int(item["title"]) for item in done.items) == list(range(40))
    assert {item["agent"] for item in done.items} <= set(platform.agents)
    assert {(item["ip"], item["protocol"]) for item in done.items} == {("127.0.0.1", "HTTP/1.1")}
    assert all(0 < item["latency"] < 5 for item in done.items)
    assert not any(item["flags"] for item in done.items)
    assert (done.stats["reason"], done.stats["downloader/response_count"]) == ("finished", 40)
