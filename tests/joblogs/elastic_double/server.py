"""The HTTP server around it."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.joblogs.elastic_double.answers import Document, error_body
from tests.joblogs.elastic_double.faults import Faults
from tests.joblogs.elastic_double.routes import Requests

MOST_BODY_BYTES = 100 * 1024 * 1024
_COMPATIBLE = re.compile(r"compatible-with=(\d+)")


class ElasticDouble:
    """One server; what it holds survives ``stop`` and ``start``."""

    def __init__(self, version: int = 9) -> None:
        # It refuses clients of a later version.
        self.version = version
        self.faults = Faults()
        self.requests = Requests(self.faults)
        # (method, path with its query) of each request.
        self.log: list[tuple[str, str]] = []
        self._port = 0
        self._server: _Server | None = None
        self.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """At the same address as before."""
        self._server = _Server(("127.0.0.1", self._port), _Handler)
        self._server.double = self
        self._port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="elastic double", daemon=True
        ).start()

    def stop(self) -> None:
        """Nobody answers any more, and connections break."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            server.break_connections()

    def asked(self, part: str) -> int:
        """How many requests had this in their path."""
        return sum(part in path for _method, path in self.log)


def _other_version(asked: str, version: int) -> Document:
    reason = "Invalid media-type value on headers [Accept, Content-Type]"
    body = error_body(400, "media_type_header_exception", reason)
    said = f"Accept version must be either version {version} or {version - 1}, but found {asked}."
    body["error"]["caused_by"] = {"type": "status_exception", "reason": said}
    return body


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    double: ElasticDouble

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def break_connections(self) -> None:
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body leave as one: else each answer waits for an acknowledgement of the first.
    wbufsize = -1
    server: _Server

    def _handle(self) -> None:
        double = self.server.double
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        double.log.append((self.command, self.path))
        if length > MOST_BODY_BYTES:
            self._send(413, None)
            return
        asked = _COMPATIBLE.search(self.headers.get("Accept", ""))
        if asked is not None and int(asked[1]) > double.version:
            self._send(400, _other_version(asked[1], double.version))
            return
        refused = double.faults.refused(self.path)
        if refused is not None:
            self._send(*refused)
            return
        kind = self.headers.get("Content-Type", "")
        answer = double.requests.answer(self.command, self.path, kind, body)
        if double.faults.is_cut(self.path):
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self._send(*answer)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _handle

    def _send(self, status: int, document: dict[str, Any] | None) -> None:
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Type", "application/vnd.elasticsearch+json;compatible-with=9")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - its name
        """Nobody reads it."""
