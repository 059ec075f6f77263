"""Every type of the net keeps the same promises: the guard, the limits, the kinds of failure."""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agents.downloader.fetchers.conftest import Opener, get
from tests.yardkit.tls_server import serve_tls
from tests.yardkit.web_server import Seen, WebServer, page, redirect, serve
from yardkit.protocol import FailureKind

HTML = {"Content-Type": "text/html; charset=utf-8"}
TYPES = ["http", "impersonate", pytest.param("browser", marks=pytest.mark.browser)]
of_every_type = pytest.mark.parametrize("kind", TYPES)


@pytest.fixture
async def site() -> AsyncIterator[WebServer]:
    body = "<p>你好</p>".encode()
    async with serve({"/": page(body, headers=HTML | {"X-Kind": "front"})}) as server:
        yield server


@of_every_type
@pytest.mark.covers("S1.30")
async def test_a_page(kind: str, site: WebServer, opener: Opener) -> None:
    fetched = await get(opener(kind), site.url("/"), headers={"X-A": "b"})
    assert (fetched.failure, fetched.status) == ("", 200), fetched
    assert "<p>你好</p>" in fetched.body.decode()
    assert fetched.url == site.url("/")
    assert ("X-Kind", "front") in fetched.headers
    assert fetched.elapsed_ms > 0
    assert site.seen[0].headers["x-a"] == "b"
    assert not [name for name in site.seen[0].headers if name.startswith("proxy-")]


@of_every_type
async def test_statuses_and_methods(kind: str, site: WebServer, opener: Opener) -> None:
    site.answers |= {
        "/busy": page(b"<p>later</p>", status="503 Busy", headers=HTML | {"Retry-After": "7"}),
        "/empty": page(b"", status="503 Busy", headers=HTML | {"Retry-After": "9"}),
        "/form": page(b"<p>made</p>", status="201 Created", headers=HTML),
    }
    fetcher = opener(kind)
    busy = await get(fetcher, site.url("/busy"))
    assert (busy.status, busy.failure) == (503, "")
    assert b"later" in busy.body
    assert ("Retry-After", "7") in busy.headers
    empty = await get(fetcher, site.url("/empty"))
    assert (empty.status, empty.body, empty.failure) == (503, b"", "")
    assert ("Retry-After", "9") in empty.headers
    assert (await get(fetcher, site.url("/missing"))).status == 404
    made = await get(fetcher, site.url("/form"), method="POST", body=b"a=1")
    assert made.status == 201
    assert [(one.method, one.body) for one in site.seen if one.path == "/form"] == [
        ("POST", b"a=1")
    ]


@of_every_type
async def test_cookies_stay_with_their_owner(kind: str, site: WebServer, opener: Opener) -> None:
    site.answers["/login"] = page(b"", headers=HTML | {"Set-Cookie": "session=abc; Path=/"})
    one, other = opener(kind, cookies={"lang": "zh"}), opener(kind)
    none = opener(kind, use_cookies=False, cookies={"lang": "zh"})
    for fetcher in (one, none):
        await get(fetcher, site.url("/login"))
    for fetcher in (one, other, none):
        await get(fetcher, site.url("/"))
    sent = [seen.headers.get("cookie", "") for seen in site.seen if seen.path == "/"]
    assert set(sent[0].split("; ")) == {"lang=zh", "session=abc"}
    assert sent[1:] == ["", ""]


@of_every_type
async def test_redirects(kind: str, site: WebServer, opener: Opener) -> None:
    site.answers |= {
        "/a": redirect("/b"),
        "/b": redirect("/"),
        "/loop": redirect("/loop"),
        "/file": redirect("file:///etc/passwd"),
    }
    fetched = await get(opener(kind), site.url("/a"))
    assert (fetched.status, fetched.url) == (200, site.url("/"))
    bounded = await get(opener(kind, max_redirects=1), site.url("/a"))
    assert bounded.failure == FailureKind.TOO_MANY_REDIRECTS
    assert (await get(opener(kind, max_redirects=2), site.url("/a"))).status == 200
    assert (await get(opener(kind), site.url("/loop"))).failure == FailureKind.TOO_MANY_REDIRECTS
    kept = await get(opener(kind, follow_redirects=False), site.url("/a"))
    assert kept.status == 302
    assert ("Location", "/b") in kept.headers
    nowhere = await get(opener(kind), site.url("/file"))
    assert nowhere.failure == FailureKind.BAD_REQUEST, nowhere


# --- the guard ----------------------------------------------------------------------------------


@of_every_type
async def test_inside_addresses_are_refused(kind: str, opener: Opener, site: WebServer) -> None:
    fetcher = opener(kind, allowed_networks=[])
    for host in ("127.0.0.1", "localhost", "[::1]", "10.0.0.1", "169.254.169.254", "2130706433"):
        fetched = await get(fetcher, f"http://{host}:{site.port}/")
        assert fetched.failure == FailureKind.ADDRESS_REFUSED, (host, fetched)
    tls = await get(fetcher, f"https://127.0.0.1:{site.port}/")
    assert tls.failure == FailureKind.ADDRESS_REFUSED
    assert site.seen == []


@of_every_type
async def test_a_redirect_inside_is_refused(kind: str, site: WebServer, opener: Opener) -> None:
    site.answers |= {
        "/inside": redirect("http://10.0.0.1/"),
        "/metadata": redirect("http://169.254.169.254/latest/"),
        "/tls": redirect(f"https://127.0.0.2:{site.port}/"),
        "/next": redirect(f"http://127.0.0.2:{site.port}/"),
    }
    fetcher = opener(kind, allowed_networks=["127.0.0.1/32"])
    for path in ("/inside", "/metadata", "/tls", "/next"):
        fetched = await get(fetcher, site.url(path))
        assert fetched.failure == FailureKind.ADDRESS_REFUSED, (path, fetched)


@of_every_type
async def test_names_are_judged_by_what_they_resolve_to(
    kind: str, site: WebServer, opener: Opener, names: dict[str, list[str]]
) -> None:
    names |= {"inside.example": ["10.0.0.1"], "here.example": ["127.0.0.1"]}
    fetcher = opener(kind)
    refused = await get(fetcher, f"http://inside.example:{site.port}/")
    assert refused.failure == FailureKind.ADDRESS_REFUSED
    assert "10.0.0.1" in refused.error
    assert (await get(fetcher, f"http://here.example:{site.port}/")).status == 200
    nowhere = await get(fetcher, "http://nowhere.example/")
    assert nowhere.failure == FailureKind.DNS, nowhere


@of_every_type
async def test_a_name_that_moves_is_judged_again(
    kind: str,
    site: WebServer,
    opener: Opener,
    names: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DNS rebinding: what is connected to is what was judged, at every connection."""
    monkeypatch.setattr("yardkit.fetcher.DNS_CACHE_SECONDS", 0)
    names["moving.example"] = ["127.0.0.1"]
    site.answers["/"] = page(b"first", headers=HTML | {"Connection": "close"})
    fetcher = opener(kind, allowed_networks=["127.0.0.1/32"])
    url = f"http://moving.example:{site.port}/"
    assert (await get(fetcher, url)).status == 200
    names["moving.example"] = ["127.0.0.1", "127.0.0.99"]
    await asyncio.sleep(0.01)
    assert (await get(fetcher, url)).failure == FailureKind.ADDRESS_REFUSED


@of_every_type
async def test_the_environment_opens_no_way_around(
    kind: str, site: WebServer, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "*")
    for name in ("http_proxy", "all_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, site.url("/"))
    fetcher = opener(kind, allowed_networks=[])
    refused = await get(fetcher, site.url("/"))
    assert refused.failure == FailureKind.ADDRESS_REFUSED
    assert site.seen == []


# --- limits -------------------------------------------------------------------------------------


@of_every_type
async def test_the_body_is_cut_while_streaming(kind: str, site: WebServer, opener: Opener) -> None:
    sent = 0

    async def endless(seen: Seen) -> bytes:
        nonlocal sent
        seen.writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        while True:
            sent += 65536
            seen.writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await seen.writer.drain()

    site.answers["/endless"] = endless
    fetched = await get(opener(kind, max_body_bytes=100_000), site.url("/endless"))
    assert (fetched.status, fetched.truncated) == (200, True), fetched
    assert len(fetched.body) <= 100_000
    assert b"x" * 100 in fetched.body
    assert sent < 64 * 1024 * 1024


@pytest.mark.slow("10 s")
@of_every_type
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_what_explodes_is_cut(
    kind: str, encoding: str, site: WebServer, opener: Opener
) -> None:
    bomb = b"\0" * (256 * 1024 * 1024)
    packed = gzip.compress(bomb) if encoding == "gzip" else zlib.compress(bomb)
    site.answers["/bomb"] = page(packed, headers=HTML | {"Content-Encoding": encoding})
    fetched = await get(opener(kind, max_body_bytes=100_000), site.url("/bomb"))
    assert (fetched.status, fetched.truncated) == (200, True), fetched
    assert len(fetched.body) <= 100_000


@of_every_type
async def test_header_values_that_are_no_utf8(kind: str, site: WebServer, opener: Opener) -> None:
    answer = page(b"<p>x</p>", headers=HTML | {"X-Latin": "LATIN"})
    site.answers["/latin"] = answer.replace(b"LATIN", b"caf\xe9")
    answered = await get(opener(kind), site.url("/latin"))
    # A browser gives texts.
    latin = "café".encode() if kind == "browser" else b"caf\xe9"
    assert (b"X-Latin", latin) in [(name.title(), value) for name, value in answered.raw_headers]
    asked = await get(opener(kind), site.url("/"), headers=[(b"X-A", b"caf\xe9")])
    if kind == "http":
        assert site.seen[-1].headers["x-a"] == "caf\xe9"
    else:
        assert asked.failure == FailureKind.BAD_REQUEST
        assert "'X-A': no UTF-8" in asked.error


@of_every_type
async def test_an_encoding_that_is_broken(kind: str, site: WebServer, opener: Opener) -> None:
    site.answers["/z"] = page(b"plain text", headers=HTML | {"Content-Encoding": "gzip"})
    assert (await get(opener(kind), site.url("/z"))).failure == FailureKind.BAD_CONTENT


@pytest.mark.slow("1 s")
@of_every_type
async def test_timeouts(kind: str, site: WebServer, opener: Opener) -> None:
    async def silent(seen: Seen) -> bytes:
        await asyncio.sleep(60)
        return b""

    async def stalls(seen: Seen) -> bytes:
        seen.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await asyncio.sleep(60)
        return b""

    site.answers |= {"/silent": silent, "/stalls": stalls}
    fetcher = opener(kind)
    assert (await get(fetcher, site.url("/"))).status == 200  # a browser starts meanwhile
    for path in ("/silent", "/stalls"):
        fetched = await get(fetcher, site.url(path), timeout_seconds=0.3)
        assert fetched.failure == FailureKind.TIMEOUT, (path, fetched)
        assert 200 < fetched.elapsed_ms < 20_000
    assert (await get(fetcher, site.url("/"))).status == 200


@of_every_type
async def test_connection_failures(kind: str, site: WebServer, opener: Opener) -> None:
    site.answers["/cut"] = lambda seen: asyncio.sleep(0, b"")
    fetcher = opener(kind)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        for url, failure in (
            (f"http://127.0.0.1:{port}/", FailureKind.REFUSED),
            (f"https://127.0.0.1:{port}/", FailureKind.REFUSED),
            (site.url("/cut"), FailureKind.RESET),
        ):
            fetched = await get(fetcher, url, timeout_seconds=10.0)
            assert fetched.failure == failure, (url, fetched)


@of_every_type
async def test_a_certificate_nobody_vouches_for(kind: str, opener: Opener, tmp_path: Path) -> None:
    """It is seen through the gate, so TLS reaches from the client to the target."""
    async with serve_tls(tmp_path) as port:
        fetched = await get(opener(kind), f"https://127.0.0.1:{port}/")
    assert fetched.failure == FailureKind.TLS, fetched
    assert "cert" in fetched.error.lower(), fetched


@of_every_type
async def test_bad_requests(kind: str, site: WebServer, opener: Opener) -> None:
    fetcher = opener(kind)
    for url in (
        "",
        "no url",
        "/relative",
        "ftp://a/",
        "file:///etc/passwd",
        "http://",
        "chrome://version",
    ):
        fetched = await get(fetcher, url)
        assert fetched.failure == FailureKind.BAD_REQUEST, (url, fetched)
    for changes in (
        {"method": "GET\r\nX: y"},
        {"headers": {"X-A": "b\r\nX-Smuggled: c"}},
        {"headers": {"X-A\r\nX-Smuggled": "c"}},
        {"timeout_seconds": -1.0},
    ):
        fetched = await get(fetcher, site.url("/"), **changes)
        assert fetched.failure == FailureKind.BAD_REQUEST, (changes, fetched)
    assert not any("x-smuggled" in seen.headers for seen in site.seen)


@of_every_type
async def test_bad_settings(kind: str, opener: Opener) -> None:
    for changes in (
        {"allowed_networks": ["nonsense"]},
        {"timeout_seconds": 0.0},
        {"max_body_bytes": 0},
        {"concurrency": 0},
        {"switch_retries": -1},
        {"switch_pattern": "("},
        {"use_proxy": True},
        {"redial": True},
    ):
        with pytest.raises(ValueError, match=r".+"):
            opener(kind, **changes)
