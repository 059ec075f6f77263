"""What a fetcher sends and returns to the byte: headers, bodies, limits, kinds of failures."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.yardkit.tls_server import serve_tls
from tests.yardkit.web_server import Seen, WebServer, page, serve
from yardkit.fetcher import Fetcher
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind

Make = Callable[..., Fetcher]
LONG = b"crawl " * 1000


@pytest.fixture
async def site() -> AsyncIterator[WebServer]:
    async with serve({"/": page(b"hello")}) as server:
        yield server


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[Fetcher] = []

    def make(**changes: Any) -> Fetcher:
        changes.setdefault("timeout_seconds", 30.0)
        made.append(Fetcher(DownloaderSettings(allowed_networks=["127.0.0.0/8"], **changes)))
        return made[-1]

    yield make
    for fetcher in made:
        await fetcher.close()


class HeadRecorder:
    """A server that keeps the bytes of one request's head."""

    def __init__(self) -> None:
        self.head = b""
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head = await reader.readuntil(b"\r\n\r\n")
        writer.write(page(b""))
        writer.close()


@pytest.fixture
async def recorder() -> AsyncIterator[HeadRecorder]:
    recorder = HeadRecorder()
    server = await asyncio.start_server(recorder.handle, "127.0.0.1", 0)
    recorder.port = server.sockets[0].getsockname()[1]
    yield recorder
    server.close()


@pytest.mark.covers("SC.2")
async def test_exact_headers_are_sent_in_order_with_repeated_names_and_nothing_else(
    recorder: HeadRecorder, make: Make
) -> None:
    headers = [(b"X-b", b"1"), (b"X-A", b"2"), (b"X-b", "é".encode())]
    await make(exact_headers=True, use_cookies=False).fetch(
        DownloadRequest(url=f"http://127.0.0.1:{recorder.port}/", method="POST", headers=headers)
    )
    lines = recorder.head.rstrip(b"\r\n").split(b"\r\n")
    assert lines == [
        b"POST / HTTP/1.1",
        b"Host: 127.0.0.1:%d" % recorder.port,
        b"X-b: 1",
        b"X-A: 2",
        b"X-b: " + "é".encode(),
        b"Content-Length: 0",
    ]


@pytest.mark.covers("SC.2")
async def test_header_values_that_are_no_utf8_are_sent_as_they_are(
    recorder: HeadRecorder, make: Make
) -> None:
    values = [b"caf\xe9", b"\xed\xa0\x80 \xff", "é".encode()]
    fetched = await make().fetch(
        DownloadRequest(
            url=f"http://127.0.0.1:{recorder.port}/",
            method="POST",
            headers=[(b"X-Name", value) for value in values],
            body=b"\xe9",
        )
    )
    assert fetched.failure == FailureKind.NONE, fetched.error
    sent = [line for line in recorder.head.split(b"\r\n") if line.startswith(b"X-Name")]
    assert sent == [b"X-Name: " + value for value in values]


@pytest.mark.parametrize(
    ("name", "value"),
    [(b"X-Name", b"\xe9\r\nX-Other: 1"), (b"X-Name", b"\xe9\0"), (b"X-\xe9", b"1")],
)
async def test_bytes_that_are_no_header_are_refused(
    site: WebServer, make: Make, name: bytes, value: bytes
) -> None:
    request = DownloadRequest(url=site.url("/"), headers=[(name, value)])
    assert (await make().fetch(request)).failure == FailureKind.BAD_REQUEST
    assert not site.seen


@pytest.mark.covers("SC.2")
async def test_response_headers_are_the_bytes_received(site: WebServer, make: Make) -> None:
    site.answers["/"] = (
        b"HTTP/1.1 200 OK\r\nx-Name: caf\xe9\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    fetched = await make().fetch(DownloadRequest(url=site.url("/")))
    assert fetched.raw_headers == [
        (b"x-Name", b"caf\xe9"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
        (b"Content-Length", b"0"),
    ]
    assert fetched.headers[0] == ("x-Name", "caf\ufffd")
    assert (fetched.protocol, fetched.peer, fetched.length) == ("HTTP/1.1", "127.0.0.1", 0)
    assert 0 < fetched.headers_ms <= fetched.elapsed_ms


@pytest.mark.covers("SC.2")
async def test_raw_bodies_keep_their_encoding(site: WebServer, make: Make) -> None:
    packed = gzip.compress(LONG)
    site.answers["/"] = page(packed, headers={"Content-Encoding": "gzip"})
    request = DownloadRequest(url=site.url("/"))
    raw = await make(raw_bodies=True).fetch(request)
    assert (raw.body, raw.header(b"content-encoding")) == (packed, "gzip")
    # Rules for texts need the text, and then nobody must decode it again.
    text = await make(raw_bodies=True, decode_html=True).fetch(request)
    assert (text.body, text.header(b"content-encoding")) == (LONG, "")


@pytest.mark.covers("SC.2")
@pytest.mark.parametrize("stated", [True, False])
async def test_a_body_over_the_limit_of_its_request_is_not_delivered(
    site: WebServer, make: Make, stated: bool
) -> None:
    head = b"Content-Length: 6000\r\n" if stated else b"Connection: close\r\n"

    async def answer(seen: Seen) -> bytes:
        seen.writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
        if not stated:
            seen.writer.write(LONG)
        await seen.writer.drain()
        # With a length the body never comes: the decision falls at the headers.
        await asyncio.sleep(0 if not stated else 30)
        seen.writer.close()
        return b""

    site.answers["/"] = answer
    fetcher = make(timeout_seconds=10.0)
    fetched = await fetcher.fetch(DownloadRequest(url=site.url("/"), max_bytes=5999))
    assert (fetched.failure, fetched.status, fetched.body) == (FailureKind.TOO_LARGE, 200, b"")
    assert "5999" in fetched.error
    assert fetched.length == (6000 if stated else -1)


async def test_a_limit_that_is_kept_changes_nothing(site: WebServer, make: Make) -> None:
    site.answers["/"] = page(LONG)
    for limit in (6000, 0):
        fetched = await make(max_body_bytes=10).fetch(
            DownloadRequest(url=site.url("/"), max_bytes=limit)
        )
        assert (fetched.failure, fetched.body) == (FailureKind.NONE, LONG)


@pytest.mark.covers("SC.2")
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_that_ends_early_is_a_loss_of_data_with_its_first_part(
    site: WebServer, make: Make, chunked: bool
) -> None:
    head = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 100"
    body = b"4\r\npart\r\n" if chunked else b"part"

    async def answer(seen: Seen) -> bytes:
        seen.writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body)
        await seen.writer.drain()
        seen.writer.close()
        return b""

    site.answers["/"] = answer
    fetched = await make().fetch(DownloadRequest(url=site.url("/")))
    assert (fetched.failure, fetched.status) == (FailureKind.DATA_LOSS, 200)
    assert fetched.body == b"part"
    assert fetched.error


@pytest.mark.covers("SC.2")
async def test_failures_to_connect_have_kinds(site: WebServer, make: Make, tmp_path: Path) -> None:
    async def hang_up(seen: Seen) -> bytes:
        return b""

    site.answers["/gone"] = hang_up
    fetcher = make()
    async with serve({}) as closed:
        port = closed.port
    async with serve_tls(tmp_path) as tls_port:
        for url, kind in (
            ("http://no-such-host.invalid/", FailureKind.DNS),
            (f"http://127.0.0.1:{port}/", FailureKind.REFUSED),
            (f"https://127.0.0.1:{tls_port}/", FailureKind.TLS),
            (site.url("/gone"), FailureKind.RESET),
        ):
            fetched = await fetcher.fetch(DownloadRequest(url=url))
            assert (fetched.failure, fetched.status) == (kind, 0), (url, fetched)
            assert fetched.error


@pytest.mark.covers("SC.2")
async def test_without_verification_any_certificate_is_taken_and_returned(
    make: Make, tmp_path: Path
) -> None:
    async with serve_tls(tmp_path, page(b"secret")) as port:
        fetcher = make(verify_tls=False, certificates=True, tls_minimum="TLSv1.3")
        fetched = await fetcher.fetch(DownloadRequest(url=f"https://127.0.0.1:{port}/"))
    assert (fetched.status, fetched.body) == (200, b"secret")
    pem = (tmp_path / "server.pem").read_text()
    certificate = pem[pem.index("-----BEGIN CERTIFICATE") :]
    assert fetched.certificate == ssl.PEM_cert_to_DER_cert(certificate)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tls_minimum": "TLSv9"}, "TLSv9"),
        ({"tls_maximum": "1.2"}, "'1.2'"),
        ({"tls_ciphers": "NONSENSE"}, "NONSENSE"),
    ],
)
def test_bad_tls_settings_are_named(changes: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Fetcher(DownloaderSettings(**changes))


async def test_a_proxy_of_a_request_is_used_and_its_password_stays_with_it(
    site: WebServer, make: Make
) -> None:
    fetcher = make()
    async with serve({"http://site.example/page": page(b"by proxy")}) as proxy:
        fetched = await fetcher.fetch(
            DownloadRequest(
                url="http://site.example/page", proxy=f"http://me:secret@127.0.0.1:{proxy.port}"
            )
        )
    assert (fetched.status, fetched.body, fetched.peer) == (200, b"by proxy", "")
    assert proxy.seen[0].headers["proxy-authorization"].startswith("Basic ")
    for bad in ("socks5://127.0.0.1:1", "nonsense"):
        refused = await fetcher.fetch(DownloadRequest(url=site.url("/"), proxy=bad))
        assert refused.failure == FailureKind.BAD_REQUEST
        assert "bad proxy" in refused.error
    gone = await fetcher.fetch(
        DownloadRequest(url=site.url("/"), proxy=f"http://127.0.0.1:{proxy.port}")
    )
    assert gone.failure == FailureKind.PROXY
