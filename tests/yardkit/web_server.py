"""A small HTTP server whose answers are raw bytes, so that a test can also send nonsense."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field


@dataclass
class Seen:
    """A request as the server got it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter


Answer = bytes | Callable[[Seen], Awaitable[bytes]]


def page(
    body: bytes = b"hello", *, status: str = "200 OK", headers: dict[str, str] | None = None
) -> bytes:
    """A proper answer with a length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return page(b"", status=status, headers={"Location": location})


@dataclass
class WebServer:
    """``answers`` by path; a path without one gets 404. ``seen`` lists all requests."""

    answers: dict[str, Answer] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    host: str = "127.0.0.1"

    def url(self, path: str) -> str:
        return f"http://{self.host}:{self.port}{path}"

    def paths(self) -> list[str]:
        return [one.path for one in self.seen]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(
            asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError
        ):
            while True:
                await self._answer(reader, writer)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        seen = Seen(method, path, headers, body, writer)
        self.seen.append(seen)
        answer = self.answers.get(path) or page(b"none", status="404 Not Found")
        if callable(answer):
            answer = await answer(seen)
        if not answer:
            raise ConnectionResetError
        writer.write(answer)
        await writer.drain()


@contextlib.asynccontextmanager
async def serve(answers: dict[str, Answer], host: str = "127.0.0.1") -> AsyncIterator[WebServer]:
    """Run the server inside the running loop."""
    site = WebServer(answers=answers, host=host)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(site.handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, host, 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
