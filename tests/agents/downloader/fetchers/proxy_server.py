"""Real proxies for tests: HTTP (CONNECT and forwarding) and SOCKS5, with and without a login."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class ProxyServer:
    """``targets`` lists what it was asked for; ``broken`` lets it accept and hang up."""

    scheme: str
    login: tuple[str, str] | None = None
    targets: list[tuple[str, int]] = field(default_factory=list)
    refused: int = 0
    broken: bool = False
    port: int = 0

    @property
    def address(self) -> str:
        """Its URL with its login."""
        login = f"{self.login[0]}:{self.login[1]}@" if self.login else ""
        return f"{self.scheme}://{login}127.0.0.1:{self.port}"

    async def handle(self, client: Streams) -> None:
        if self.broken:
            return
        if self.scheme == "socks5":
            server = await self._socks(client)
        else:
            server = await self._http(client)
        if server is not None:
            copies = [
                asyncio.ensure_future(_copy(client[0], server[1])),
                asyncio.ensure_future(_copy(server[0], client[1])),
            ]
            try:
                await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in copies:
                    one.cancel()
                server[1].close()

    async def _http(self, client: Streams) -> Streams | None:
        reader, writer = client
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if self.login is not None:
            wanted = base64.b64encode(":".join(self.login).encode()).decode()
            if f"Proxy-Authorization: Basic {wanted}" not in head:
                self.refused += 1
                writer.write(b"HTTP/1.1 407 Login\r\nContent-Length: 0\r\n\r\n")
                return None
        method, target, rest = head.split(" ", 2)
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            server = await self._connect(host, int(port))
            if server is None:
                writer.write(b"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n")
                return None
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            return server
        authority, _, path = target.removeprefix("http://").partition("/")
        host, _, port = authority.partition(":")
        server = await self._connect(host, int(port or 80))
        if server is not None:
            lines = [
                line for line in rest.split("\r\n") if not line.startswith("Proxy-Authorization: ")
            ]
            server[1].write(f"{method} /{path} ".encode() + "\r\n".join(lines).encode())
        return server

    async def _socks(self, client: Streams) -> Streams | None:
        reader, writer = client
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        wanted = 2 if self.login else 0
        if wanted not in methods:
            self.refused += 1
            writer.write(b"\x05\xff")
            return None
        writer.write(bytes([5, wanted]))
        if self.login is not None:
            await reader.readexactly(1)
            given = [
                (await reader.readexactly((await reader.readexactly(1))[0])).decode()
                for _ in range(2)
            ]
            if tuple(given) != self.login:
                self.refused += 1
                writer.write(b"\x01\x01")
                return None
            writer.write(b"\x01\x00")
        _, _, _, kind = await reader.readexactly(4)
        assert kind == 3, "the name goes to the proxy"
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        server = await self._connect(host, port)
        code = b"\x00" if server is not None else b"\x05"
        writer.write(b"\x05" + code + b"\x00\x01" + b"\0" * 6)
        return server

    async def _connect(self, host: str, port: int) -> Streams | None:
        self.targets.append((host, port))
        # Every name is this machine, as a proxy of another network might see it.
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()


@contextlib.asynccontextmanager
async def serve_proxy(
    scheme: str = "http", login: tuple[str, str] | None = None
) -> AsyncIterator[ProxyServer]:
    """Run the proxy inside the running loop."""
    proxy = ProxyServer(scheme, login)
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await proxy.handle((reader, writer))

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(handle(reader, writer))
        tasks.add(task)

        def done(_: asyncio.Task[None]) -> None:
            tasks.discard(task)
            writer.close()

        task.add_done_callback(done)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
