"""Small web sites for the tests: real HTTP on a free port of 127.0.0.1."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# (status, headers, body); a callable gets the path and may wait before it returns one.
Reply = tuple[int, dict[str, str], bytes]
HTML = {"Content-Type": "text/html; charset=utf-8"}


class Site:
    """What a test asks about its server: ``url`` without a slash, ``paths`` as they were asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.paths: list[str] = []


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up in the middle is nothing to print."""


@contextmanager
def serve(
    pages: Mapping[str, Reply] | Callable[[str], Reply], *, default: Reply = (404, HTML, b"")
) -> Iterator[Site]:
    """Serve ``pages`` by path (with query) until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            site.paths.append(self.path)
            reply = pages(self.path) if callable(pages) else pages.get(self.path, default)
            status, headers, body = reply
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    site = Site(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
