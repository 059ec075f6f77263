"""The site that is crawled: 8 KB pages with 21 links each, from memory, by a process of its own.

``python -m tools.benches.pages PAGES`` prints its port and serves until its input closes.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

LINKS = 21
PAGE_BYTES = 8192


def page(number: int, pages: int) -> bytes:
    """Page ``number`` links to 21 others; from page 0 every page can be reached."""
    links = "".join(
        f'<li><a href="/p/{(number * LINKS + step) % pages}.html">page</a></li>'
        for step in range(1, LINKS + 1)
    )
    head = (
        f"<!doctype html><html><head><title>Page {number}</title></head><body><ul>{links}</ul><p>"
    )
    tail = "</p></body></html>"
    filler = "The quick brown fox jumps over the lazy dog. " * 200
    return (head + filler[: PAGE_BYTES - len(head) - len(tail)] + tail).encode()


class Server(asyncio.Protocol):
    """The least HTTP/1.1 that keep-alive clients need, so that the site is never the limit."""

    answers: dict[bytes, bytes] = {}
    missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        # uvloop's transports are not registered as asyncio's, so isinstance() would not help.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        """Answer every complete request; GET has no body."""
        *requests, self._buffer = (self._buffer + data).split(b"\r\n\r\n")
        for request in requests:
            path = request.split(b" ", 2)[1]
            answer = self.answers.get(path, self.missing)
            self._transport.write(answer)


def answers(pages: int) -> dict[bytes, bytes]:
    """Every answer, headers included, by path."""
    made = {}
    for number in range(pages):
        body = page(number, pages)
        header = (
            "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        made[f"/p/{number}.html".encode()] = header.encode() + body
    return made


async def serve(pages: int) -> None:
    """Serve until standard input closes: the end of whoever started this."""
    Server.answers = answers(pages)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Server, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    try:
        import uvloop

        uvloop.run(serve(int(sys.argv[1])))
    except ImportError:
        asyncio.run(serve(int(sys.argv[1])))
