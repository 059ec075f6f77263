"""URLs as they go over the wire: as written, yet never anything that could break a request."""

from __future__ import annotations

import string
from collections.abc import AsyncIterator

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from tests.yardkit.web_server import WebServer, page, redirect, serve
from yardkit.fetched import Fetched
from yardkit.fetcher import Fetcher
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind
from yardkit.wire_url import as_written, sendable

# Each is changed by a library that puts URLs into its own usual form.
SPELLINGS = [
    "/%7Euser/~",
    "/a%2Cb,c?sign=a%2Cb,c%3D%3d",
    "/broken%zz%?x=%",
    "/?q=a+b%20c&q=%E4%B8%AD&empty=&&",
    "/a%2Fb//c;v=1?u=http%3A%2F%2Fx%2F%3Fy",
    "/.well-known/%2e%2e/x?path=/../%41",
]


@pytest.fixture
async def site() -> AsyncIterator[WebServer]:
    async with serve({}) as server:
        yield server


async def fetch(url: str) -> Fetched:
    fetcher = Fetcher(DownloaderSettings(allowed_networks=["127.0.0.0/8"], timeout_seconds=30.0))
    try:
        return await fetcher.fetch(DownloadRequest(url=url))
    finally:
        await fetcher.close()


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_signed_url_arrives_as_it_was_signed(site: WebServer, spelling: str) -> None:
    site.answers[spelling] = page(b"signed")
    fetched = await fetch(site.url(spelling))
    assert site.paths() == [spelling]
    assert (fetched.body, fetched.url) == (b"signed", site.url(spelling))


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_so_does_one_that_a_redirect_leads_to(site: WebServer, spelling: str) -> None:
    site.answers |= {"/old": redirect(site.url(spelling)), "/up": redirect(spelling)}
    site.answers[spelling] = page(b"signed")
    for start in ("/old", "/up"):
        fetched = await fetch(site.url(start))
        assert (fetched.body, fetched.url) == (b"signed", site.url(spelling))
        assert site.paths()[-1] == spelling


async def test_without_a_redirect_the_url_is_the_one_asked_for(site: WebServer) -> None:
    asked = site.url("/%7E").replace("http://127", "HTTP://127")
    assert (await fetch(asked)).url == asked
    # What had to be quoted is reported as it was sent, so that links resolve against that.
    fetched = await fetch(site.url("/ü b/%7E#part"))
    assert (fetched.status, fetched.url) == (404, site.url("/%C3%BC%20b/%7E"))
    assert site.paths() == ["/%7E", "/%C3%BC%20b/%7E"]


async def test_what_no_url_may_hold_is_quoted_in_redirects_too(site: WebServer) -> None:
    site.answers["/old"] = redirect('/a b"<>?c d|\\')
    fetched = await fetch(site.url("/old"))
    assert site.paths()[-1] == "/a%20b%22%3C%3E?c%20d%7C%5C"
    assert fetched.url == site.url("/a%20b%22%3C%3E?c%20d%7C%5C")


async def test_a_redirect_keeps_cookies_and_guard_whatever_its_letters(site: WebServer) -> None:
    landing = f"HTTP://LOCALHOST:{site.port}/in"
    start = f"http://localhost:{site.port}/login"
    site.answers["/login"] = page(
        status="302 Found", headers={"Location": landing, "Set-Cookie": "s=1; Domain=localhost"}
    )
    site.answers["/in"] = page(b"in")
    assert (await fetch(start)).url == landing.lower()
    assert site.seen[-1].headers["cookie"] == "s=1"
    site.answers["/wide"] = redirect("http://10.0.0.1/%7e")
    assert (await fetch(site.url("/wide"))).failure == FailureKind.ADDRESS_REFUSED


@given(st.text(max_size=30), st.text(alphabet=string.printable + "/.?#%\\@:ü\u3002", max_size=30))
def test_nothing_unsendable_comes_out(host: str, tail: str) -> None:
    text = f"http://{host}{tail}"
    try:
        usual = URL(text)
    except ValueError:
        with pytest.raises(aiohttp.InvalidURL):
            as_written(text)
        return
    url = as_written(text)
    # Never another host than the one that everybody else reads in it, and never two lines.
    assert (url.raw_host, url.port, url.user) == (usual.raw_host, usual.port, usual.user)
    assert not usual.raw_host or all(33 <= ord(c) < 127 for c in url.raw_path_qs)
    assert sendable(url) == url


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("http://h", "/"),
        ("http://h?a=%2C", "/?a=%2C"),
        ("http://h/a/../%7Eb/./c", "/~b/c"),
        ("http://h/%7E#part", "/%7E"),
        ("http://u:p%40@h:80/%7E", "/%7E"),
        ("http://h/a\r\nX-Smuggled:1", "/aX-Smuggled:1"),
    ],
)
def test_the_path_that_is_sent(text: str, sent: str) -> None:
    url = as_written(text)
    assert url.raw_path_qs == sent
    assert url.raw_host == "h"
