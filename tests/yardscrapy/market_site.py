"""The site of the project ``market``: forms, cookies, redirects, errors, a sitemap, a file."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

PHOTO = bytes(range(256)) * 40


class MarketSite:
    """``asked`` counts requests by path."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: Counter[str] = Counter()


@contextmanager
def market_site() -> Iterator[MarketSite]:
    """Serve on a free port of 127.0.0.1 until the block ends."""
    site = MarketSite()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            site.asked[self.path] += 1
            path = self.path.partition("?")[0]
            cookie = self.headers.get("Cookie", "nobody")
            if path == "/login":
                self._send(b"<form action=/account method=post><input name=token value=t1></form>")
            elif path == "/account":
                self._send(cookie.encode())
            elif path == "/redirect":
                self._send(b"", 302, Location="/page")
            elif path == "/flaky" and site.asked[path] < 3:
                self._send(b"", 503)
            elif path.startswith("/gone"):
                self._send(b"gone", 404)
            elif path == "/robots.txt":
                self._send(f"Sitemap: {site.url}/sitemap.xml".encode(), kind="text/plain")
            elif path == "/sitemap.xml":
                urls = "".join(f"<url><loc>{site.url}/{n}</loc></url>" for n in (1, 2, 3))
                self._send(f"<urlset>{urls}</urlset>".encode(), kind="application/xml")
            elif path == "/photo.png":
                self._send(PHOTO, kind="image/png")
            else:
                if path.startswith("/slow/"):
                    time.sleep(0.05)
                number = int("0" + path.strip("/")) if path.strip("/").isdecimal() else 99
                links = "".join(f"<a href=/{number * 2 + n}>x</a>" for n in (0, 1))
                self._send((links if number < 8 else "end").encode())

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            cookie = f"{form['user'][0]}-{form['token'][0]}"
            self._send(cookie.encode(), 302, Location="/account", **{"Set-Cookie": f"who={cookie}"})

        def _send(
            self, body: bytes, status: int = 200, kind: str = "text/html", **headers: str
        ) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": kind, **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
