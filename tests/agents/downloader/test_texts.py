"""An agent treats texts as the run's settings say, and keeps each run to its own settings."""

from __future__ import annotations

import gzip
import time

import pytest

from tests.agents.downloader.agent_peer import AgentPeer, item
from tests.agents.downloader.conftest import Start
from tests.agents.downloader.gate import Gate
from tests.yardkit.web_server import WebServer, page, redirect
from yardkit.broker import Broker
from yardkit.protocol import CutRule, DownloadCommand, DownloadRequest, FailureKind
from yardspider import Response

HTML = {"Content-Type": "text/html; charset=gbk"}


@pytest.mark.covers("S1.27")
async def test_content_is_cut_on_the_agent(start: Start, other: AgentPeer, site: WebServer) -> None:
    start()
    zipped = gzip.compress(("头" * 600_000 + "<p>中文</p>").encode("gbk"))
    site.answers |= {
        "/page": page("头<p>中文</p>尾".encode("gbk"), headers=HTML),
        "/large": page(zipped, headers=HTML | {"Content-Encoding": "gzip"}),
        "/other": page(b"nothing of that", headers=HTML),
        "/image": page(b"\x89PNG", headers={"Content-Type": "image/png"}),
        "/gone": page(b"<b>no</b>", status="404 Not Found", headers=HTML),
    }  # fmt: skip
    await other.allocate(cut=[CutRule(start="<p>", end="</p>", start_offset=3, end_offset=-4)])
    paths = ["/page", "/large", "/other", "/image", "/gone"]
    other.download([site.url(path) for path in paths])
    results = await other.results(5)
    for number in (0, 1):
        cut = results[number]
        assert cut.body == "中文".encode("gbk"), "no more than that travels"
        assert Response(cut.url, headers=cut.headers, body=cut.body).text == "中文"
    failures = [(results[n].failure, results[n].status, results[n].error) for n in (2, 3)]
    assert failures == [
        (FailureKind.BAD_RULE, 0, "cut rule 1: start '<p>' was not found"),
        (FailureKind.BAD_RULE, 0, "rules cut texts, and this is 'image/png'"),
    ]
    assert (results[4].status, results[4].body) == (404, b"<b>no</b>")


async def test_a_centers_own_request_is_not_cut(
    start: Start, other: AgentPeer, site: WebServer
) -> None:
    start()
    text = b"User-agent: *\nDisallow: /private &amp; more\n"
    site.answers["/robots.txt"] = page(text, headers={"Content-Type": "text/plain"})
    await other.allocate(cut=[CutRule(start="<p>", end="</p>")], decode_html=True)
    request = DownloadRequest(url=site.url("/robots.txt"))
    own = DownloadCommand(
        run=other.run,
        reply_to=other.answers.name,
        items=[item(-1, request), item(1, request)],
        dispatched_at=time.time(),
    )
    other.send(own)
    results = await other.results(2)
    assert (results[-1].status, results[-1].body) == (200, text)
    assert results[1].failure == FailureKind.BAD_RULE


@pytest.mark.covers("S1.25", "S1.30")
async def test_two_runs_share_neither_cookies_nor_connections(
    start: Start, broker: Broker, other: AgentPeer, site: WebServer
) -> None:
    start()
    for run in (7, 8, 9):
        cookie = {"Set-Cookie": f"session={run}; Path=/"}
        site.answers[f"/login{run}"] = page(b"", headers=cookie)
    sides = {7: other, 8: AgentPeer(broker, run=8), 9: AgentPeer(broker, run=9)}
    await sides[7].allocate(cookies={"own": "7"})
    await sides[8].allocate()
    await sides[9].allocate(cookies={"own": "9"}, use_cookies=False)
    for turn in ("login", "page"):
        for run, side in sides.items():
            side.download([site.url(f"/{turn}{run}")])
            await side.results(1)
    sent = {seen.path: set(seen.headers.get("cookie", "").split("; ")) for seen in site.seen}
    assert sent == {
        "/login7": {"own=7"}, "/page7": {"own=7", "session=7"},
        "/login8": {""}, "/page8": {"session=8"},
        "/login9": {""}, "/page9": {""},
    }  # fmt: skip
    assert site.connections == 3, "each run its own, used twice"


@pytest.mark.slow("5 s")
@pytest.mark.covers("S1.25", "S1.30")
async def test_each_run_has_its_own_limits(
    start: Start, broker: Broker, other: AgentPeer, site: WebServer
) -> None:
    start()
    bomb = gzip.compress(b"\0" * 50_000_000)
    site.answers |= {
        "/bomb": page(bomb, headers={"Content-Encoding": "gzip"}),
        "/long": page(b"x" * 5000),
        "/moved": redirect("/once"),
        "/once": redirect("/long"),
        "/slow": Gate(),
    }
    paths = ["/bomb", "/long", "/moved", "/slow"]
    strict = AgentPeer(broker, run=8)
    await other.allocate(max_body_bytes=4000, max_redirects=1, timeout_seconds=3)
    await strict.allocate(max_body_bytes=100, follow_redirects=False, timeout_seconds=60)
    other.download([site.url(path) for path in paths])
    strict.download([site.url(path) for path in paths[:3]])
    wide, narrow = await other.results(4), await strict.results(3)
    sizes = [
        (len(results[n].body), results[n].truncated) for results in (wide, narrow) for n in (0, 1)
    ]
    assert sizes == [(4000, True), (4000, True), (100, True), (100, True)]
    assert wide[2].failure == FailureKind.TOO_MANY_REDIRECTS
    assert narrow[2].status == 302
    assert wide[3].failure == FailureKind.TIMEOUT
