"""Connections checked by the SSRF guard, directly or through a proxy.

The target's name is resolved and judged here, at connect time, and the connection goes to one of
the judged addresses. Through a proxy the same check is made first, but the proxy gets the name and
resolves it again: its own network is the responsibility of its operator.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
import ssl
import struct
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from yardkit.addresses import resolve_name
from yardkit.bridge import in_daemon_thread
from yardkit.fetcher import GuardedResolver

SCHEMES: Final = ("http", "https", "socks5")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

# One dead address of several must not use up the time of the whole download.
_ADDRESS_SECONDS: Final = 5.0
_PROXY_SECONDS: Final = 10.0
_READ_BUFFER_BYTES: Final = 256 * 1024
_MAX_HEAD_BYTES: Final = 16 * 1024
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "socks5": 1080}
_SOCKS_VERSION: Final = 5
_SOCKS_TARGET_FAILURES: Final = {
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
}
# Statuses of a proxy when the target failed, not the proxy.
_TARGET_FAILED: Final = frozenset({500, 502, 503, 504})


class ProxyError(OSError):
    """The proxy failed or refused; the request has not reached its target."""


class TargetError(OSError):
    """The proxy works, but cannot reach the target."""


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """Address and credentials of a proxy. The credentials are in none of its texts."""

    scheme: str
    host: str
    port: int
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str) -> ProxyAddress:
        """Parse "socks5://user:password@host:1080"; the default scheme is HTTP.

        Raises ``ValueError``, whose text repeats nothing: it may contain a password.
        """
        text = text.strip()
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            scheme = "socks5" if parts.scheme == "socks5h" else parts.scheme
            host, port = parts.hostname or "", parts.port
            port = _DEFAULT_PORTS[scheme] if port is None else port
            if scheme not in SCHEMES:
                raise KeyError(scheme)
        except (ValueError, KeyError):
            raise ValueError(f"no proxy such as {'://, '.join(SCHEMES)}://host:port") from None
        if not host or not port or parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError("a proxy is scheme://user:password@host:port and nothing more")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if len(user.encode()) > 255 or len(password.encode()) > 255:
            raise ValueError("a proxy's user or password has more than 255 bytes")
        return cls(scheme, host, port, user, password)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def authorization(self) -> str:
        """Value of ``Proxy-Authorization``; "" without a user."""
        if not self.user and not self.password:
            return ""
        pair = f"{self.user}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode('ascii')}"

    @property
    def forwards(self) -> bool:
        """Whether plain HTTP is forwarded by URL, not through a tunnel."""
        return self.scheme in ("http", "https")


class Dialer:
    """Connects to targets that the guard allows, through ``proxy`` if given."""

    def __init__(self, resolver: GuardedResolver, proxy: ProxyAddress | None = None) -> None:
        self.proxy = proxy
        self._resolver = resolver

    async def connect(self, host: str, port: int, *, tunnel: bool = True) -> Streams:
        """Return streams to ``host``; with ``tunnel=False`` to the forwarding HTTP proxy.

        Raises ``AddressRefused``, ``ProxyError``, ``TargetError``, ``TimeoutError``, another
        ``OSError``, or ``ValueError`` for an invalid host.
        """
        addresses = [
            found["host"] for found in await self._resolver.resolve(host, port, socket.AF_UNSPEC)
        ]
        if self.proxy is None:
            return await _connect_first(addresses, port)
        try:
            async with asyncio.timeout(_PROXY_SECONDS):
                return await self._through(self.proxy, host, port, tunnel)
        except TimeoutError as error:
            raise ProxyError(f"proxy {self.proxy}: no answer in time") from error

    async def _through(self, proxy: ProxyAddress, host: str, port: int, tunnel: bool) -> Streams:
        reader, writer = await _connect_proxy(proxy)
        try:
            if proxy.scheme == "socks5":
                await _socks5(reader, writer, proxy, host, port)
            elif tunnel:
                await _http_tunnel(reader, writer, proxy, host, port)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
            writer.close()
            raise ProxyError(f"proxy {proxy}: broken answer") from error
        except BaseException:
            writer.close()
            raise
        return reader, writer


async def _connect_first(addresses: list[str], port: int) -> Streams:
    """Try the addresses in order; raise the last error."""
    limit = None if len(addresses) == 1 else _ADDRESS_SECONDS
    last: OSError = OSError("no address")
    for address in addresses:
        try:
            async with asyncio.timeout(limit):
                return await asyncio.open_connection(address, port, limit=_READ_BUFFER_BYTES)
        except OSError as error:
            last = error
    raise last


async def _connect_proxy(proxy: ProxyAddress) -> Streams:
    try:
        # Not the loop's own resolver: the process would wait for its threads at the end.
        address = (await in_daemon_thread(resolve_name, proxy.host))[0]
        if proxy.scheme != "https":
            return await asyncio.open_connection(address, proxy.port, limit=_READ_BUFFER_BYTES)
        return await asyncio.open_connection(
            address,
            proxy.port,
            limit=_READ_BUFFER_BYTES,
            ssl=ssl.create_default_context(),
            server_hostname=proxy.host,
        )
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ProxyError(f"proxy {proxy}: {reason}") from error


async def _http_tunnel(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    proxy: ProxyAddress,
    host: str,
    port: int,
) -> None:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    writer.write("\r\n".join([*lines, "", ""]).encode("ascii"))
    head = await reader.readuntil(b"\r\n\r\n")
    version, _, rest = head.split(b"\r\n", 1)[0].partition(b" ")
    code = rest[:3].decode("latin-1")
    if not version.startswith(b"HTTP/1") or not code.isdecimal() or len(head) > _MAX_HEAD_BYTES:
        raise ProxyError(f"proxy {proxy}: no HTTP proxy answers there")
    if code.startswith("2"):
        return
    if int(code) in _TARGET_FAILED:
        raise TargetError(f"proxy {proxy} cannot reach the target: HTTP {code}")
    raise ProxyError(f"proxy {proxy}: HTTP {code}")


async def _socks5(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    proxy: ProxyAddress,
    host: str,
    port: int,
) -> None:
    """Connect by RFC 1928 and 1929: the proxy resolves the name."""
    with_password = bool(proxy.user or proxy.password)
    writer.write(b"\x05\x01\x02" if with_password else b"\x05\x01\x00")
    version, method = await reader.readexactly(2)
    if version != _SOCKS_VERSION or method != (2 if with_password else 0):
        raise ProxyError(f"proxy {proxy}: it wants another way to log in, or is no SOCKS5 proxy")
    if with_password:
        user, password = proxy.user.encode(), proxy.password.encode()
        writer.write(b"\x01" + bytes([len(user)]) + user + bytes([len(password)]) + password)
        if (await reader.readexactly(2))[1] != 0:
            raise ProxyError(f"proxy {proxy}: user or password refused")
    writer.write(b"\x05\x01\x00" + _socks5_address(host) + struct.pack(">H", port))
    _, code, _, kind = await reader.readexactly(4)
    if code in _SOCKS_TARGET_FAILURES:
        raise TargetError(f"proxy {proxy} cannot reach the target: {_SOCKS_TARGET_FAILURES[code]}")
    if code != 0:
        raise ProxyError(f"proxy {proxy}: refused with SOCKS5 code {code}")
    length = {1: 4, 4: 16}.get(kind) or (await reader.readexactly(1))[0]
    await reader.readexactly(length + 2)


def _socks5_address(host: str) -> bytes:
    if ":" in host:
        return b"\x04" + ipaddress.IPv6Address(host).packed
    name = host.encode("ascii")
    return b"\x03" + bytes([len(name)]) + name
