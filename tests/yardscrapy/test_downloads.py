"""What becomes of single downloads: exceptions, limits, signals, proxies, robots.txt."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.yardscrapy.odd_site import LARGE_BYTES, OddSite, odd_site
from tests.yardscrapy.scrapy_platform import POLITE_HOST, Crawled, ScrapyPlatform

pytestmark = pytest.mark.slow("starts a center and agents")

CLOSED = "http://127.0.0.1:1/closed"
OWN = {
    "refused": "scrapy.exceptions.DownloadConnectionRefusedError",
    "timeout": "scrapy.exceptions.DownloadTimeoutError",
    "data_loss": "scrapy.exceptions.ResponseDataLossError",
    "too_large": "scrapy.exceptions.DownloadCancelledError",
}
TWISTED = {
    "refused": "twisted.internet.error.ConnectionRefusedError",
    "timeout": "twisted.internet.error.TimeoutError",
    "data_loss": "twisted.web._newclient.ResponseFailed",
    "too_large": "twisted.internet.defer.CancelledError",
}


@pytest.fixture
def site() -> Iterator[OddSite]:
    with odd_site() as site:
        yield site


def exceptions(python: str) -> dict[str, str]:
    """The exceptions of its version: Scrapy's own since 2.15."""
    code = "import scrapy; print(scrapy.version_info[:2] >= (2, 15))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return OWN if done.stdout.strip() == "True" else TWISTED


def fetch(
    platform: ScrapyPlatform, site: OddSite, python: str, paths: str, *arguments: str
) -> Crawled:
    site_argument = ("-a", f"site={site.url}", "-a", f"paths={paths}")
    done = platform.crawl("each", *site_argument, *arguments, python=python)
    assert done.status == 0, done.log
    return done


def test_failures_are_the_exceptions_of_this_version(
    platform: ScrapyPlatform, site: OddSite, python: str
) -> None:
    paths = f"/ok /slow /short /large /endless {CLOSED} http://10.0.0.1/ ftp://127.0.0.1/x"
    limits = ("-s", "DOWNLOAD_TIMEOUT=1", "-s", "DOWNLOAD_MAXSIZE=100000")
    done = fetch(platform, site, python, paths, *limits)
    expected = exceptions(python)
    assert done.item("/ok")["status"] == 200
    assert done.item("/slow")["error"] == expected["timeout"]
    # Twisted's own class puts words around it.
    assert f"Getting {site.url}/slow took longer than 1.0 seconds." in done.item("/slow")["text"]
    assert done.item("/short")["error"] == expected["data_loss"]
    assert done.item("/closed")["error"] == expected["refused"]
    for path in ("/large", "/endless"):
        assert done.item(path)["error"] == expected["too_large"]
    assert f"{LARGE_BYTES}" in done.item("/large")["text"]
    assert "100000" in done.item("/endless")["text"]
    refused = done.item("10.0.0.1/")
    assert refused["error"] == "yardscrapy.failures.DownloadRefused"
    assert "CRAWLYARD_DIRECT_SCHEMES" in done.item("ftp://127.0.0.1/x")["text"]
    # RETRY_TIMES is 1: what RETRY_EXCEPTIONS lists was tried twice, the rest once.
    assert (site.asked["/slow"], site.asked["/short"]) == (2, 2)
    assert (site.asked["/large"], site.asked["/endless"]) == (1, 1)
    assert "Got data loss in" in done.log


def test_a_partial_body_is_delivered_where_the_project_takes_it(
    platform: ScrapyPlatform, site: OddSite, python: str
) -> None:
    done = fetch(platform, site, python, "/short", "-s", "DOWNLOAD_FAIL_ON_DATALOSS=0")
    item = done.item("/short")
    assert (item["length"], item["flags"]) == (10, ["dataloss"])


def test_answers_are_raw_and_scrapy_reads_them(
    platform: ScrapyPlatform, site: OddSite, python: str
) -> None:
    done = fetch(platform, site, python, "/gzip /cookies /large", "-s", "DOWNLOAD_WARNSIZE=1000")
    packed = done.item("/gzip")
    assert (packed["length"], packed["type"]) == (7007, "HtmlResponse")
    headers = dict(done.item("/cookies")["headers"])
    assert headers["Set-Cookie"] == ["one=1", "two=2"]
    assert headers["X-Latin"] == ["caf\xe9"]
    assert "warn size (1000)" in done.log


def test_nothing_is_added_to_the_headers_of_the_project(
    platform: ScrapyPlatform, site: OddSite, python: str
) -> None:
    done = platform.crawl("posts", "-a", f"site={site.url}", python=python)
    (item,) = done.items
    sent = [(name, value) for name, value in item["headers"] if name not in ("Host", "Connection")]
    assert (item["method"], item["body"]) == ("POST", "a=b")
    names = {name for name, _ in sent}
    assert names == {
        *("Accept", "Accept-Language", "Accept-Encoding", "User-Agent", "Content-Length"),
        *("X-Twice", "X-Latin", "Content-Type"),
    }
    # The site reads its headers as Latin-1.
    assert ("X-Latin", "caf\xe9") in sent
    assert [value for name, value in sent if name == "X-Twice"] == ["1", "2"]
    assert ("User-Agent", "shop-bot/1.0") in sent


@pytest.mark.parametrize("fail", [True, False])
def test_a_receiver_of_signals_stops_a_download(
    platform: ScrapyPlatform, site: OddSite, python: str, fail: bool
) -> None:
    done = platform.crawl(
        "stopped", "-a", f"site={site.url}", "-a", f"fail={int(fail)}", python=python
    )
    by_path = {item["url"].rpartition("/")[2]: item for item in done.items}
    assert by_path["large"]["length"] == 65_536
    assert by_path["ok"]["length"] == 0
    for item in by_path.values():
        assert item["flags"] == ["download_stopped"]
        assert item["failed"] is fail


def test_a_proxy_is_refused_or_left_to_the_agent(
    platform: ScrapyPlatform, site: OddSite, python: str
) -> None:
    meta = ("-a", f"meta={json.dumps({'proxy': 'http://me:secret@127.0.0.1:1'})}")
    refused = fetch(platform, site, python, "/headers", *meta).item("/headers")
    assert refused["error"] == "yardscrapy.failures.DownloadRefused"
    assert "CRAWLYARD_PROXY" in refused["text"]
    assert not site.asked["/headers"]
    done = fetch(platform, site, python, "/headers", *meta, "-s", "CRAWLYARD_PROXY=agent")
    assert done.item("/headers")["status"] == 200
    assert "Proxy-Authorization" not in str(done.item("/headers"))
    passed = fetch(platform, site, python, "/headers", *meta, "-s", "CRAWLYARD_PROXY=pass")
    assert "error" in passed.item("/headers")


def test_the_center_obeys_robots_txt_for_the_project(platform: ScrapyPlatform, python: str) -> None:
    with odd_site(POLITE_HOST) as site:
        done = fetch(platform, site, python, "/private /ok", "-s", "ROBOTSTXT_OBEY=1")
    assert done.item("/private")["error"] == "scrapy.exceptions.IgnoreRequest"
    assert done.item("/private")["text"] == "Forbidden by robots.txt"
    assert done.stats["robotstxt/forbidden"] == 1
    assert done.item("/ok")["status"] == 200
    assert (site.asked["/private"], site.asked["/robots.txt"]) == (0, 1)
    with odd_site(POLITE_HOST) as site:
        meta = ("-a", f"meta={json.dumps({'dont_obey_robotstxt': True})}")
        done = fetch(platform, site, python, "/private", "-s", "ROBOTSTXT_OBEY=1", *meta)
    assert "error" not in done.item("/private")
    assert (site.asked["/private"], site.asked["/robots.txt"]) == (1, 0)


def test_a_chained_run_stays_with_the_agent_of_the_page(
    platform: ScrapyPlatform, site: OddSite, python: str
) -> None:
    environment = platform.run(CRAWLYARD_POLICY="chained")
    done = platform.crawl(
        "chains", "-a", f"site={site.url}", python=python, environment=environment
    )
    chains: dict[str, set[str]] = {}
    for item in done.items:
        chains.setdefault(item["chain"], set()).add(item["agent"])
        assert item["flags"] == [f"agent={item['agent']}"]
    assert [len(agents) for agents in chains.values()] == [1] * 6
    assert len(done.items) == 24
