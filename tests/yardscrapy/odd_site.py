"""A web site whose pages end badly, each in its own way."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROBOTS = b"User-agent: *\nDisallow: /private\n"
LARGE_BYTES = 200_000


class OddSite:
    """``url`` without a slash; ``asked``: how often each path was requested."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: Counter[str] = Counter()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: OddSite

    def do_GET(self) -> None:
        self.site.asked[self.path] += 1
        page = getattr(self, f"page_{self.path.strip('/').partition('?')[0]}", self.page_missing)
        page()

    do_POST = do_GET

    def page_missing(self) -> None:
        if self.path == "/robots.txt":
            self._reply(200, ROBOTS, ("Content-Type", "text/plain"))
        else:
            self._reply(404, b"nothing here")

    def page_ok(self) -> None:
        self._reply(200, b"<p>well</p>", ("Content-Type", "text/html"))

    page_private = page_ok

    def page_slow(self) -> None:
        time.sleep(3.0)
        self.close_connection = True

    def page_short(self) -> None:
        self._head(200, ("Content-Length", "100"), ("Content-Type", "text/plain"))
        self.wfile.write(b"0123456789")
        self.close_connection = True

    def page_large(self) -> None:
        self._head(200, ("Content-Length", str(LARGE_BYTES)), ("Content-Type", "text/plain"))
        self.wfile.write(b"x" * LARGE_BYTES)

    def page_endless(self) -> None:
        self._head(200, ("Transfer-Encoding", "chunked"), ("Content-Type", "text/plain"))
        for _ in range(20):
            self.wfile.write(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def page_gzip(self) -> None:
        body = gzip.compress(b"<p>" + b"packed " * 1000 + b"</p>")
        self._reply(200, body, ("Content-Type", "text/html"), ("Content-Encoding", "gzip"))

    def page_cookies(self) -> None:
        self._reply(
            200, b"", ("Set-Cookie", "one=1"), ("Set-Cookie", "two=2"), ("X-Latin", "caf\xe9")
        )

    def page_headers(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode("latin-1")
        got = {"headers": self.headers.items(), "body": body, "method": self.command}
        self._reply(200, json.dumps(got).encode(), ("Content-Type", "application/json"))

    def _reply(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self._head(status, ("Content-Length", str(len(body))), *headers)
        self.wfile.write(body)

    def _head(self, status: int, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up in the middle is nothing to print."""


@contextmanager
def odd_site(host: str = "127.0.0.1") -> Iterator[OddSite]:
    """Serve until the block ends."""
    handler = type("Handler", (_Handler,), {})
    server = _Server((host, 0), handler)
    site = handler.site = OddSite(f"http://{host}:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
