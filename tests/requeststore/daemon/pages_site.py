"""A site of small pages that answers fast enough not to be what is measured.

``/p/7``: page 7; ``/wait/7``: the same after a while; ``/status/503``: that status; ``/once/7``:
503 the first time; ``/list/7``: links to three pages; ``/silent``: never answers.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import Any

from apps.requeststore.daemon.loop import DaemonLoop

WAIT_SECONDS = 0.3


class Site:
    """In a thread of its own; ``hits`` counts paths."""

    def __init__(self) -> None:
        self.hits: Counter[str] = Counter()
        self.headers: dict[str, str] = {}
        self.open: set[Any] = set()
        self._thread = DaemonLoop("site")
        self._thread.start()
        self._server = self._thread.do(self._open(0), 10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _open(self, port: int) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: _Connection(self), "127.0.0.1", port, backlog=512)

    def close(self) -> None:
        self._thread.do(self._shut(), 10)
        self._thread.close()

    async def _shut(self) -> None:
        self._server.close()
        for transport in list(self.open):
            transport.abort()
        await asyncio.sleep(0.05)


class _Connection(asyncio.Protocol):
    def __init__(self, site: Site) -> None:
        self.site = site
        self.data = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.site.open.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.site.open.discard(self.transport)

    def data_received(self, data: bytes) -> None:
        self.data += data
        while b"\r\n\r\n" in self.data:
            head, _, self.data = self.data.partition(b"\r\n\r\n")
            self.answer(head.decode("latin-1"))

    def answer(self, head: str) -> None:
        path = head.split(" ", 2)[1]
        hits = self.site.hits
        hits[path] += 1
        lines = [line.partition(": ") for line in head.split("\r\n")[1:]]
        self.site.headers = {name.lower(): value for name, _, value in lines}
        _, kind, *rest = path.split("?")[0].split("/")
        status = int(rest[0]) if kind == "status" else 200
        if kind == "once" and hits[path] == 1:
            status = 503
        if kind == "silent":
            return
        body = b"busy" if status != 200 else _page(kind, rest[0] if rest else "")
        text = (
            f"HTTP/1.1 {status} X\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        if kind == "wait":
            asyncio.get_running_loop().call_later(WAIT_SECONDS, self.send, text.encode() + body)
        else:
            self.send(text.encode() + body)

    def send(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)


def _page(kind: str, name: str) -> bytes:
    if kind == "list":
        links = "".join(f'<a class="page" href="/p/{name}{n}">x</a>' for n in range(3))
        return f"<html><body>{links}</body></html>".encode()
    return (
        f"<html><head><title>Page {name}</title></head><body><h1>Title {name}</h1>"
        f'<p class="price">{name}</p><ul><li>one</li><li>two</li></ul></body></html>'
    ).encode()


def main() -> None:
    """As a process: writes its port and serves until it is killed."""
    site = Site()
    sys.stdout.write(f"{site.port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
