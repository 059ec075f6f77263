"""A registry to ask: the API v2 with its tokens, on a port of this machine."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

LOOPBACK = ["127.0.0.0/8"]


def digest_of(text: str) -> str:
    """The digest that the double gives an image."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@dataclass
class RegistryDouble:
    """What it holds, how it behaves, and what it was asked."""

    images: dict[str, dict[str, str]] = field(default_factory=dict)
    auth: str = "bearer"
    username: str = "robot"
    password: str = "pass word"
    page_size: int = 1000
    tokens: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    # path -> (status, headers, body) instead of the right answer
    instead: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    # set while the double shall keep everybody waiting
    hold: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def push(self, repository: str, tag: str, content: str = "") -> str:
        """A new image; its digest."""
        digest = digest_of(content or f"{repository}:{tag}")
        self.images.setdefault(repository, {})[tag] = digest
        return digest

    def credentials(self) -> dict[str, Any]:
        """For ``Registry``."""
        return {"username": self.username, "password": self.password}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    double: RegistryDouble

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        double = self.double
        parts = urlsplit(self.path)
        double.asked.append(f"{self.command} {self.path}")
        if double.hold.is_set():
            # Let go by the test's end, or by the client that hangs up.
            self.connection.recv(1)
            return
        if parts.path in double.instead:
            status, headers, body = double.instead[parts.path]
            self._answer(status, body, headers)
        elif parts.path == "/token":
            self._token(parse_qs(parts.query))
        elif not self._allowed():
            challenge = {
                "bearer": f'Bearer realm="{double.url}/token",service="double"',
                "basic": 'Basic realm="double"',
            }[double.auth]
            self._answer(401, b"{}", {"WWW-Authenticate": challenge})
        else:
            self._repository(parts.path, parse_qs(parts.query))

    def _basic(self) -> str:
        pair = f"{self.double.username}:{self.double.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"

    def _allowed(self) -> bool:
        sent = self.headers.get("Authorization", "")
        if self.double.auth == "none":
            return True
        if self.double.auth == "basic":
            return sent == self._basic()
        return sent.removeprefix("Bearer ") in self.double.tokens

    def _token(self, query: dict[str, list[str]]) -> None:
        scope = query.get("scope", [""])[0]
        if self.headers.get("Authorization") != self._basic() or not scope.endswith(":pull"):
            self._answer(401, b"{}")
            return
        token = secrets.token_hex(8)
        self.double.tokens.add(token)
        self._answer(200, json.dumps({"token": token}).encode())

    def _repository(self, path: str, query: dict[str, list[str]]) -> None:
        for name, tags in self.double.images.items():
            if path == f"/v2/{name}/tags/list":
                self._tags(name, sorted(tags), query)
                return
            start = f"/v2/{name}/manifests/"
            if path.startswith(start) and path.removeprefix(start) in tags:
                digest = tags[path.removeprefix(start)]
                self._answer(200, b"", {"Docker-Content-Digest": digest})
                return
        self._answer(404, b'{"errors": []}')

    def _tags(self, name: str, tags: list[str], query: dict[str, list[str]]) -> None:
        last = query.get("last", [""])[0]
        page = [tag for tag in tags if tag > last][: self.double.page_size]
        headers = {}
        if page and page[-1] != tags[-1]:
            headers["Link"] = f'</v2/{name}/tags/list?n=2&last={page[-1]}>; rel="next"'
        self._answer(200, json.dumps({"name": name, "tags": page}).encode(), headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Nothing."""


@contextmanager
def running_registry(**options: Any) -> Iterator[RegistryDouble]:
    """A double that answers until the block ends."""
    double = RegistryDouble(**options)
    handler = type("Handler", (_Handler,), {"double": double})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    double.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
