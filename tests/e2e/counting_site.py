"""A real web site that counts who asked for what, and a plain walk over it to compare with."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.parse import urldefrag, urljoin, urlsplit
from urllib.request import urlopen


@dataclass
class CountingSite:
    """Pages from memory; ``delay_seconds`` makes a crawl long enough to break something in it.

    A request for one of the ``silent`` pages is counted and never answered.
    """

    pages: dict[str, str]
    delay_seconds: float = 0.0
    silent: frozenset[str] = frozenset()
    hits: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    _closing: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> CountingSite:
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.split("?")[0]
                site.hits[path] += 1
                if path in site.silent:
                    site._closing.wait()
                    self.close_connection = True
                    return
                time.sleep(site.delay_seconds)
                text = site.pages.get(path)
                body = (text or "nothing here").encode()
                self.send_response(200 if text is not None else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Quiet."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512

            def handle_error(self, request: object, client_address: object) -> None:
                """A killed agent leaves broken connections behind; that is the point."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"


def tree(pages: int, *, broken: int = 0) -> dict[str, str]:
    """A site of ``pages`` pages where each links to three others and some to nothing."""
    site = {}
    for number in range(pages):
        links = "".join(
            f'<a href="/{(number * 3 + step) % pages}.html#part">x</a>' for step in (1, 2, 3)
        )
        if number < broken:
            links += f'<a href="/missing-{number}.html">x</a>'
        site[f"/{number}.html"] = f"<html><title>{number}</title><body>{links}</body></html>"
    site["/"] = '<html><body><a href="0.html">first</a><a href="mailto:a@b.c">x</a></body></html>'
    return site


@dataclass(frozen=True)
class Walk:
    """What a plain breadth-first walk found."""

    pages: set[str]
    other: set[str]
    failed: set[str]

    @property
    def all(self) -> set[str]:
        return self.pages | self.other | self.failed


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value is not None]


def walk(start: str) -> Walk:
    """Every same-origin ``a[href]`` without fragment, by nothing but the standard library."""
    origin = urlsplit(start)[:2]
    queue, known = deque([start]), {start}
    result = Walk(set(), set(), set())
    while queue:
        url = queue.popleft()
        try:
            with urlopen(url, timeout=10) as answer:  # noqa: S310 - our own site
                html = answer.headers.get_content_type() == "text/html"
                text = answer.read().decode("utf-8", "replace") if html else ""
        except HTTPError as error:
            error.close()
            result.failed.add(url)
            continue
        if not html:
            result.other.add(url)
            continue
        result.pages.add(url)
        parser = _Links()
        parser.feed(text)
        for href in parser.found:
            target = urldefrag(urljoin(url, href.strip())).url
            if urlsplit(target)[:2] == origin and target not in known:
                known.add(target)
                queue.append(target)
    return result
