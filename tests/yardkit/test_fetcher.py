"""The fetcher against a real server: answers, limits, and every kind of failure."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.yardkit.tls_server import serve_tls
from tests.yardkit.web_server import Seen, WebServer, page, redirect, serve
from yardkit import addresses
from yardkit.fetched import Fetched
from yardkit.fetcher import Fetcher
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind

LOOPBACK = ["127.0.0.0/8"]
Get = Callable[..., Any]


@pytest.fixture
async def site() -> AsyncIterator[WebServer]:
    async with serve({"/": page(b"hello", headers={"X-Kind": "front"})}) as server:
        yield server


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Fetcher]]:
    """Fetchers that may reach this machine, closed at the end."""
    made: list[Fetcher] = []

    def make(**changes: Any) -> Fetcher:
        changes.setdefault("allowed_networks", LOOPBACK)
        changes.setdefault("timeout_seconds", 30.0)
        made.append(Fetcher(DownloaderSettings(**changes)))
        return made[-1]

    yield make
    for fetcher in made:
        await fetcher.close()


async def fetch(fetcher: Fetcher, url: str, **changes: Any) -> Fetched:
    fetched = await fetcher.fetch(DownloadRequest(url=url, **changes))
    # Whatever came back has to fit into a message.
    msgspec.msgpack.encode(
        [fetched.url, fetched.raw_headers, fetched.body, fetched.error, fetched.failure]
    )
    if fetched.failure:
        assert fetched.status == 0 or fetched.failure == FailureKind.DATA_LOSS
        assert fetched.error
    return fetched


async def test_a_page(site: WebServer, make: Get) -> None:
    fetched = await fetch(make(user_agent="Yard/1"), site.url("/"), headers={"X-A": "b"})
    assert (fetched.status, fetched.body, fetched.failure) == (200, b"hello", FailureKind.NONE)
    assert fetched.url == site.url("/")
    assert ("X-Kind", "front") in fetched.headers
    assert fetched.elapsed_ms > 0
    assert site.seen[0].headers["user-agent"] == "Yard/1"
    assert site.seen[0].headers["x-a"] == "b"
    assert site.seen[0].headers["accept-encoding"] == "gzip, deflate"


async def test_methods_and_bodies(site: WebServer, make: Get) -> None:
    site.answers["/form"] = page(b"ok", status="201 Created")
    fetched = await fetch(make(), site.url("/form"), method="POST", body=b"a=1")
    assert fetched.status == 201
    assert (site.seen[0].method, site.seen[0].body) == ("POST", b"a=1")
    site.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    head = await fetch(make(), site.url("/"), method="HEAD")
    assert (head.status, head.body) == (200, b"")


async def test_errors_of_the_server_are_answers(site: WebServer, make: Get) -> None:
    site.answers["/broken"] = page(b"oops", status="503 Busy")
    fetched = await fetch(make(), site.url("/broken"))
    assert (fetched.status, fetched.body, fetched.failure) == (503, b"oops", FailureKind.NONE)
    assert (await fetch(make(), site.url("/missing"))).status == 404


async def test_connections_are_kept(site: WebServer, make: Get) -> None:
    fetcher = make()
    for _ in range(5):
        assert (await fetch(fetcher, site.url("/"))).status == 200
    assert site.connections == 1


async def test_cookies_stay_with_their_owner(site: WebServer, make: Get) -> None:
    site.answers["/login"] = page(b"", headers={"Set-Cookie": "session=abc; Path=/"})
    one, other = make(cookies={"lang": "zh"}), make()
    await fetch(one, site.url("/login"))
    await fetch(one, site.url("/"))
    await fetch(other, site.url("/"))
    assert set(site.seen[1].headers["cookie"].split("; ")) == {"lang=zh", "session=abc"}
    assert "cookie" not in site.seen[2].headers


@pytest.mark.covers("S1.30")
async def test_without_cookies_none_is_stored_or_sent(site: WebServer, make: Get) -> None:
    cookie = {"Set-Cookie": "session=abc; Path=/"}
    site.answers["/login"] = page(b"", headers=cookie)
    site.answers["/moved"] = page(b"", status="302 Found", headers=cookie | {"Location": "/"})
    fetcher = make(cookies={"lang": "zh"}, use_cookies=False)
    for path in ("/login", "/", "/moved", "/"):
        await fetch(fetcher, site.url(path))
    assert site.paths() == ["/login", "/", "/moved", "/", "/"]
    assert not any("cookie" in seen.headers for seen in site.seen)
    # What a request brings itself is a header like any other.
    await fetch(fetcher, site.url("/"), headers={"Cookie": "own=1"})
    assert site.seen[-1].headers["cookie"] == "own=1"


async def test_gzip(site: WebServer, make: Get) -> None:
    body = b"crawl " * 1000
    site.answers["/z"] = page(gzip.compress(body), headers={"Content-Encoding": "gzip"})
    fetched = await fetch(make(), site.url("/z"))
    assert (fetched.body, fetched.truncated) == (body, False)
    cut = await fetch(make(max_body_bytes=1000), site.url("/z"))
    assert (cut.status, cut.body, cut.truncated) == (200, body[:1000], True)


@pytest.mark.parametrize("encoding", ["gzip", "br"])
async def test_bad_encoding(site: WebServer, make: Get, encoding: str) -> None:
    site.answers["/z"] = page(b"plain text", headers={"Content-Encoding": encoding})
    fetched = await fetch(make(), site.url("/z"))
    assert fetched.failure == FailureKind.BAD_CONTENT
    assert encoding in fetched.error


async def test_the_body_is_cut_while_streaming(site: WebServer, make: Get) -> None:
    sent = 0

    async def endless(seen: Seen) -> bytes:
        nonlocal sent
        seen.writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            sent += 65536
            seen.writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await seen.writer.drain()

    site.answers["/endless"] = endless
    site.answers["/long"] = page(b"y" * 5000)
    fetcher = make(max_body_bytes=1000)
    fetched = await fetch(fetcher, site.url("/endless"))
    assert (fetched.status, fetched.body, fetched.truncated) == (200, b"x" * 1000, True)
    assert sent < 64 * 1024 * 1024
    long = await fetch(fetcher, site.url("/long"))
    assert (len(long.body), long.truncated) == (1000, True)
    exact = await fetch(make(max_body_bytes=5000), site.url("/long"))
    assert (len(exact.body), exact.truncated) == (5000, False)


async def test_timeouts(site: WebServer, make: Get) -> None:
    async def silent(seen: Seen) -> bytes:
        await asyncio.sleep(60)
        return b""

    async def stalls(seen: Seen) -> bytes:
        seen.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await asyncio.sleep(60)
        return b""

    site.answers |= {"/silent": silent, "/stalls": stalls}
    fetcher = make()
    for path in ("/silent", "/stalls"):
        fetched = await fetch(fetcher, site.url(path), timeout_seconds=0.1)
        assert fetched.failure == FailureKind.TIMEOUT
        assert fetched.elapsed_ms >= 90
    settled = await fetch(make(timeout_seconds=0.1), site.url("/silent"))
    assert settled.failure == FailureKind.TIMEOUT


async def test_connection_failures(site: WebServer, make: Get) -> None:
    site.answers["/cut"] = lambda seen: asyncio.sleep(0, b"")
    site.answers["/short"] = cut_short
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        for url, kind in (
            (f"http://127.0.0.1:{port}/", FailureKind.REFUSED),
            (site.url("/cut"), FailureKind.RESET),
            (site.url("/short"), FailureKind.DATA_LOSS),
            ("http://nowhere.invalid/", FailureKind.DNS),
        ):
            fetched = await fetch(make(), url)
            assert fetched.failure == kind, (url, fetched)


async def cut_short(seen: Seen) -> bytes:
    seen.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    await seen.writer.drain()
    return b""


async def test_nonsense_instead_of_http(site: WebServer, make: Get) -> None:
    site.answers["/banner"] = b"SSH-2.0-OpenSSH_9.2\r\n\r\n"
    site.answers["/fat"] = page(b"", headers={"X-Fat": "x" * 100_000})
    for path in ("/banner", "/fat"):
        fetched = await fetch(make(), site.url(path))
        assert fetched.failure == FailureKind.BAD_CONTENT, fetched


async def test_headers_that_are_no_text(site: WebServer, make: Get) -> None:
    site.answers["/odd"] = b"HTTP/1.1 200 OK\r\nX-Odd: caf\xe9\r\nContent-Length: 0\r\n\r\n"
    fetched = await fetch(make(), site.url("/odd"))
    assert fetched.status == 200
    assert dict(fetched.headers)["X-Odd"] == "caf\ufffd"


async def test_a_certificate_nobody_vouches_for(make: Get, tmp_path: Path) -> None:
    async with serve_tls(tmp_path) as port:
        fetched = await fetch(make(), f"https://127.0.0.1:{port}/")
        assert fetched.failure == FailureKind.TLS
        assert "certificate" in fetched.error.lower()
        # Plain HTTP to a TLS port, and TLS to a plain one.
        plain = await fetch(make(), f"http://127.0.0.1:{port}/")
        assert plain.failure in (FailureKind.RESET, FailureKind.BAD_CONTENT)


async def test_tls_to_a_plain_server(site: WebServer, make: Get) -> None:
    fetched = await fetch(make(timeout_seconds=0.5), site.url("/").replace("http:", "https:"))
    assert fetched.failure in (FailureKind.TLS, FailureKind.RESET, FailureKind.TIMEOUT)


async def test_no_answer_raises(site: WebServer, make: Get) -> None:
    """Mutations of a good answer, and plain noise."""
    good = page(gzip.compress(b"crawl"), headers={"Content-Encoding": "gzip", "Location": "/"})
    noise = random.Random(7)
    fetcher = make(timeout_seconds=2.0, max_body_bytes=10_000)
    for _ in range(200):
        answer = bytearray(good)
        for _ in range(noise.randint(1, 8)):
            answer[noise.randrange(len(answer))] = noise.randrange(256)
        raw = bytes(answer) if noise.random() < 0.8 else noise.randbytes(200)

        async def reply(seen: Seen, raw: bytes = raw) -> bytes:
            seen.writer.write(raw)
            await seen.writer.drain()
            return b""  # closes the connection, so that no length is waited for

        site.answers["/noise"] = reply
        await fetch(fetcher, site.url("/noise"))


# --- redirects ----------------------------------------------------------------------------------


async def test_redirects_are_followed(site: WebServer, make: Get) -> None:
    site.answers |= {"/a": redirect("/b"), "/b": redirect("/")}
    fetched = await fetch(make(), site.url("/a"))
    assert (fetched.status, fetched.url) == (200, site.url("/"))
    kept = await fetch(make(follow_redirects=False), site.url("/a"))
    assert kept.status == 302
    assert ("Location", "/b") in kept.headers


async def test_redirects_are_bounded(site: WebServer, make: Get) -> None:
    site.answers |= {"/loop": redirect("/loop"), "/a": redirect("/b"), "/b": redirect("/")}
    fetched = await fetch(make(max_redirects=4), site.url("/loop"))
    assert fetched.failure == FailureKind.TOO_MANY_REDIRECTS
    assert len(site.seen) == 5
    assert (await fetch(make(max_redirects=2), site.url("/a"))).status == 200
    too_many = await fetch(make(max_redirects=1), site.url("/a"))
    assert too_many.failure == FailureKind.TOO_MANY_REDIRECTS


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "javascript:alert(1)", "http://", "http://[::1"]
)
async def test_redirects_to_nowhere(site: WebServer, make: Get, location: str) -> None:
    site.answers["/a"] = redirect(location)
    fetched = await fetch(make(), site.url("/a"))
    assert fetched.failure == FailureKind.BAD_REQUEST


# --- the guard ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "10.0.0.1",
        "169.254.169.254",
        "１２７.0.0.1",
    ],
)
async def test_inside_addresses_are_refused(make: Get, host: str) -> None:
    fetched = await fetch(make(allowed_networks=[]), f"http://{host}:9/")
    assert fetched.failure == FailureKind.ADDRESS_REFUSED, fetched


async def test_a_redirect_inside_is_refused(site: WebServer, make: Get) -> None:
    site.answers["/inside"] = redirect("http://10.0.0.1/")
    site.answers["/metadata"] = redirect("http://169.254.169.254/latest/")
    for path in ("/inside", "/metadata"):
        fetched = await fetch(make(), site.url(path))
        assert fetched.failure == FailureKind.ADDRESS_REFUSED
    # What was opened is one network, not the machine: another loopback address stays shut.
    site.answers["/next"] = redirect("http://127.0.0.2:9/")
    fetched = await fetch(make(allowed_networks=["127.0.0.1/32"]), site.url("/next"))
    assert fetched.failure == FailureKind.ADDRESS_REFUSED


async def test_names_are_judged_by_what_they_resolve_to(
    site: WebServer, make: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"inside.example": ["10.0.0.1"], "here.example": ["127.0.0.1"]}
    monkeypatch.setattr(addresses, "resolve_name", answers.__getitem__)
    refused = await fetch(make(), f"http://inside.example:{site.port}/")
    assert refused.failure == FailureKind.ADDRESS_REFUSED
    assert "10.0.0.1" in refused.error
    assert (await fetch(make(), f"http://here.example:{site.port}/")).status == 200


async def test_a_name_that_moves_is_judged_again(
    site: WebServer, make: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the first look-up is harmless, the one that is connected to is not."""
    monkeypatch.setattr("yardkit.fetcher.DNS_CACHE_SECONDS", 0)
    turns = iter([["127.0.0.1"], ["127.0.0.1", "127.0.0.99"]])
    monkeypatch.setattr(addresses, "resolve_name", lambda name: next(turns))
    site.answers["/"] = page(b"first", headers={"Connection": "close"})
    fetcher = make(allowed_networks=["127.0.0.1/32"])
    url = f"http://moving.example:{site.port}/"
    assert (await fetch(fetcher, url)).status == 200
    await asyncio.sleep(0.01)
    assert (await fetch(fetcher, url)).failure == FailureKind.ADDRESS_REFUSED


# --- bad requests -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"url": ""},
        {"url": "no url"},
        {"url": "/relative"},
        {"url": "ftp://example.com/"},
        {"url": "file:///etc/passwd"},
        {"url": "http://"},
        {"url": "http://[::1"},
        {"url": "http://host:99999/"},
        {"url": "http://exa mple/"},
        {"url": "http://\udce9/"},
        {"url": "{site}", "method": "GE T"},
        {"url": "{site}", "method": "GET\r\nX: y"},
        {"url": "{site}", "headers": {"X-A": "b\r\nX-Smuggled: c"}},
        {"url": "{site}", "headers": {"X-A\r\nX-Smuggled": "c"}},
        {"url": "{site}", "timeout_seconds": -1.0},
        {"url": "{site}", "timeout_seconds": float("nan")},
    ],
)
async def test_bad_requests(site: WebServer, make: Get, changes: dict[str, Any]) -> None:
    changes = changes | {"url": changes["url"].replace("{site}", site.url("/"))}
    fetcher = make(timeout_seconds=5.0)
    fetched = await fetcher.fetch(DownloadRequest(**changes))
    assert fetched.failure == FailureKind.BAD_REQUEST, fetched
    assert not any("x-smuggled" in seen.headers for seen in site.seen)
    assert (await fetch(fetcher, site.url("/"))).status == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"allowed_networks": ["nonsense"]},
        {"timeout_seconds": 0.0},
        {"timeout_seconds": float("nan")},
        {"timeout_seconds": float("inf")},
        {"cookies": {"a b": "1"}},
        {"cookies": {"": "1"}},
        {"cookies": {"a": "1\r\nX: y"}},
        {"cookies": {"a\x7f": "1"}},
        {"max_body_bytes": 0},
        {"max_redirects": -1},
        {"concurrency": 0},
    ],
)
def test_bad_settings(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"nonsense|use"):
        Fetcher(DownloaderSettings(**changes))


async def test_after_close_it_answers_with_a_failure(site: WebServer, make: Get) -> None:
    fetcher = make()
    await fetcher.close()
    fetched = await fetch(fetcher, site.url("/"))
    assert fetched.failure == FailureKind.BAD_REQUEST


async def test_cancelling_is_not_swallowed(site: WebServer, make: Get) -> None:
    async def silent(seen: Seen) -> bytes:
        await asyncio.sleep(60)
        return b""

    site.answers["/silent"] = silent
    task = asyncio.ensure_future(fetch(make(), site.url("/silent")))
    while not site.seen:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    url=st.text(max_size=60) | st.text(max_size=30).map(lambda text: f"http://{text}/"),
    method=st.sampled_from(["GET", "POST"]) | st.text(max_size=5),
    headers=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=2),
)
def test_no_request_raises(url: str, method: str, headers: dict[str, str]) -> None:
    async def once() -> Fetched:
        fetcher = Fetcher(DownloaderSettings(timeout_seconds=0.5))
        try:
            return await fetch(fetcher, url, method=method, headers=headers)
        finally:
            await fetcher.close()

    asyncio.run(once())
