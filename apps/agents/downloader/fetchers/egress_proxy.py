"""A guarding HTTP proxy inside the agent: the only way out for clients that connect by themselves.

A browser and libcurl resolve names and connect on their own, without a hook at connect time. So
they get this proxy only: every connection of theirs, also for redirects and subresources, is made
by ``Dialer``. TLS stays between them and the target, so their fingerprint on the wire is unchanged.

It listens on loopback and requires a random password: other processes of the machine must not use
it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from apps.agents.downloader.fetchers.dialer import Dialer, ProxyAddress, ProxyError, Streams
from yardkit.addresses import AddressRefused, NameUnresolved, Network
from yardkit.fetcher import GuardedResolver
from yardkit.protocol import FailureKind

Refusal = tuple[FailureKind, str]

_HEADER: Final = "X-Gate-Refusal"
_USER: Final = "agent"
_HEAD_SECONDS: Final = 30.0
_MAX_HEAD_BYTES: Final = 320 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_MAX_REMEMBERED: Final = 1000
_ERROR_CHARACTERS: Final = 300
# Hop-by-hop headers.
_OF_THE_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "proxy-authorization", "upgrade", "te"}
)
_BAD: Final = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_LOGIN: Final = (
    b"HTTP/1.1 407 Proxy Authentication Required\r\n"
    b'Proxy-Authenticate: Basic realm="gate"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'
)
Head = tuple[str, list[tuple[str, str]]]


class EgressProxy:
    """Proxy to targets that ``networks`` and the guard allow, through ``proxy`` if given.

    Open and close it inside the running event loop.
    """

    def __init__(self, networks: Sequence[Network], proxy: ProxyAddress | None = None) -> None:
        self.proxy = proxy
        self._dialer = Dialer(GuardedResolver(tuple(networks)), proxy)
        self._password = secrets.token_urlsafe(24)
        self._mark = secrets.token_urlsafe(24)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusals: OrderedDict[tuple[str, int], Refusal] = OrderedDict()

    @property
    def address(self) -> tuple[str, int]:
        """Address on which it listens."""
        return "127.0.0.1", self._port

    @property
    def url(self) -> str:
        """The address as a proxy URL, without the password."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def login(self) -> tuple[str, str]:
        """The user and password it requires."""
        return _USER, self._password

    async def open(self) -> None:
        """Start to listen."""
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=_MAX_HEAD_BYTES
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """End every connection through it."""
        if self._server is None:
            return
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    def refusal_in(self, headers: Iterable[tuple[str, str]]) -> Refusal | None:
        """Return the refusal in these headers, if they are its own and not those of a page."""
        for name, value in headers:
            if name.lower() == _HEADER.lower():
                mark, _, rest = value.partition(" ")
                if hmac.compare_digest(mark.encode(), self._mark.encode()):
                    kind, _, text = rest.partition(" ")
                    return FailureKind(kind), unquote(text)
        return None

    def refusal_of(self, url: str) -> Refusal | None:
        """Return the last refusal for host and port of ``url``; None after a connection."""
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme in ("https", "wss") else 80)
        except ValueError:
            return None
        return self._refusals.get((parts.hostname or "", port))

    # --- one connection -------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)

        def done(_: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            writer.close()  # also of one that was cancelled before its first line

        task.add_done_callback(done)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                first, headers = await _read_head(reader)
            if not self._is_ours(headers):
                writer.write(_LOGIN)
            else:
                await self._pass_on(first, headers, (reader, writer))
        except ValueError:
            writer.write(_BAD)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # one of the two sides is gone, and the other learns it by the end of this

    def _is_ours(self, headers: list[tuple[str, str]]) -> bool:
        wanted = base64.b64encode(f"{_USER}:{self._password}".encode())
        given = {name.lower(): value for name, value in headers}
        scheme, _, value = given.get("proxy-authorization", "").partition(" ")
        return scheme.lower() == "basic" and hmac.compare_digest(
            value.strip().encode("latin-1"), wanted
        )

    async def _pass_on(self, first: str, headers: list[tuple[str, str]], client: Streams) -> None:
        method, target, _ = first.split(" ", 2)
        tunnel = method == "CONNECT"
        parts = urlsplit(f"//{target}" if tunnel else target)
        if not parts.hostname or not (tunnel or parts.scheme == "http"):
            raise ValueError(target)
        host, port = parts.hostname, parts.port or (443 if tunnel else 80)
        forwards = not tunnel and self.proxy is not None and self.proxy.forwards
        try:
            server = await self._dialer.connect(host, port, tunnel=not forwards)
        except (OSError, ValueError) as error:
            client[1].write(self._refuse(host, port, error))
            return
        self._refusals.pop((host, port), None)
        try:
            if tunnel:
                client[1].write(b"HTTP/1.1 200 OK\r\n\r\n")
                await _relay(client, server)
            else:
                path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
                server[1].write(
                    self._rewritten(method, target if forwards else path, headers, forwards)
                )
                await self._exchange(client, server)
        finally:
            server[1].close()

    def _rewritten(
        self, method: str, target: str, headers: list[tuple[str, str]], forwards: bool
    ) -> bytes:
        kept = [(name, value) for name, value in headers if name.lower() not in _OF_THE_HOP]
        if forwards and self.proxy is not None and self.proxy.authorization:
            kept.append(("Proxy-Authorization", self.proxy.authorization))
        return _head_bytes(f"{method} {target} HTTP/1.1", [*kept, ("Connection", "close")])

    async def _exchange(self, client: Streams, server: Streams) -> None:
        """Relay one request and its answer, then close both connections.

        A client that kept its connection could send a request for another host into it.
        """
        sending = asyncio.ensure_future(_copy(client[0], server[1]))
        receiving = asyncio.ensure_future(self._answer(server[0], client[1]))
        await _until_one_ends(sending, receiving)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status = 100
        while 100 <= status < 200:
            first, headers = await _read_head(reader)
            words = first.split(" ", 2)
            status = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
            if status == 407 and self.proxy is not None and self.proxy.forwards:
                error = ProxyError(f"proxy {self.proxy}: HTTP 407")
                writer.write(self._refuse("", 0, error))
                return
            kept = [(name, value) for name, value in headers if name.lower() not in _OF_THE_HOP]
            if status >= 200:
                kept.append(("Connection", "close"))
            writer.write(_head_bytes(first, kept))
        await _copy(reader, writer)

    def _refuse(self, host: str, port: int, error: Exception) -> bytes:
        kind = FailureKind.CONNECTION
        if isinstance(error, AddressRefused):
            kind = FailureKind.ADDRESS_REFUSED
        elif isinstance(error, ProxyError):
            kind = FailureKind.PROXY
        elif isinstance(error, TimeoutError):
            kind = FailureKind.TIMEOUT
        elif isinstance(error, ValueError):
            kind = FailureKind.BAD_REQUEST
        elif isinstance(error, NameUnresolved):
            kind = FailureKind.DNS
        elif isinstance(error, ConnectionRefusedError):
            kind = FailureKind.REFUSED
        elif isinstance(error, ConnectionResetError):
            kind = FailureKind.RESET
        text = str(error)[:_ERROR_CHARACTERS] or type(error).__name__
        self._refusals[host, port] = (kind, text)
        self._refusals.move_to_end((host, port))
        while len(self._refusals) > _MAX_REMEMBERED:
            self._refusals.popitem(last=False)
        marked = f"{self._mark} {kind.value} {quote(text)}"
        return _head_bytes(
            "HTTP/1.1 502 Bad Gateway",
            [(_HEADER, marked), ("Content-Length", "0"), ("Connection", "close")],
        )


async def _read_head(reader: asyncio.StreamReader) -> Head:
    """Read the first line and the headers. Raises ``ValueError`` for invalid HTTP."""
    raw = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = raw[:-4].split("\r\n")
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError("a header without a colon")
        headers.append((name, value.strip()))
    return first, headers


def _head_bytes(first: str, headers: list[tuple[str, str]]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


async def _relay(client: Streams, server: Streams) -> None:
    await _until_one_ends(
        asyncio.ensure_future(_copy(client[0], server[1])),
        asyncio.ensure_future(_copy(server[0], client[1])),
    )


async def _until_one_ends(*copies: asyncio.Task[None]) -> None:
    """Wait for the first end: no HTTP client closes one direction only."""
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in copies:
            task.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
