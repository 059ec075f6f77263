"""One server of the web of ``bench download --profile web``: TLS, gzip, slow and dead hosts.

``python -m tools.benches.web_site`` prints its three ports (living, refusing, silent hosts), reads
the web as JSON from the first line of its input, and serves until its input closes. After a line
``count`` it prints its counters as JSON and begins them again.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import re
import socket
import ssl
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final, cast

import msgspec
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tools.benches.web_pages import ROBOTS, SLOW_SECONDS, Web, compressed_page, is_slow

_PAGE: Final = re.compile(rb"/p/(\d+)\.html")
_HEADERS: Final = (
    "HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Sat, 28 Nov 2026 12:00:00 GMT\r\n"
    "Content-Type: text/html; charset=utf-8\r\nContent-Encoding: gzip\r\n"
    "Vary: Accept-Encoding\r\nCache-Control: public, max-age=300\r\n"
    'ETag: "5f3c-61a0b2c4d5e6f"\r\nStrict-Transport-Security: max-age=31536000\r\n'
    "X-Content-Type-Options: nosniff\r\nContent-Length: {}\r\n\r\n"
)
_ROBOTS: Final = (
    b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s"
    % (len(ROBOTS), ROBOTS)
)
_MISSING: Final = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class _Site(asyncio.Protocol):
    """Answers GET requests of keep-alive clients."""

    web: Web
    counts: Counter[str] = Counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not registered as asyncio's, so isinstance() would not help.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._buffer = b""
        self.counts["connections"] += 1

    def data_received(self, data: bytes) -> None:
        *requests, self._buffer = (self._buffer + data).split(b"\r\n\r\n")
        for request in requests:
            path = request.split(b" ", 2)[1]
            page = _PAGE.fullmatch(path)
            if page is not None:
                self._answer(int(page.group(1)))
            elif path == b"/robots.txt":
                self.counts["robots"] += 1
                self._transport.write(_ROBOTS)
            else:
                self.counts["forbidden"] += path.startswith(b"/private/")
                self._transport.write(_MISSING)

    def _answer(self, number: int) -> None:
        body = compressed_page(self.web, number)
        answer = _HEADERS.format(len(body)).encode() + body
        self.counts["pages"] += 1
        self.counts["bytes"] += len(body)
        if is_slow(number):
            self.counts["slow"] += 1
            asyncio.get_running_loop().call_later(SLOW_SECONDS, self._transport.write, answer)
        else:
            self._transport.write(answer)


def _tls() -> ssl.SSLContext:
    """Return a context with a certificate of its own for all hosts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("*.localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "site.pem")
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context.load_cert_chain(path)
    return context


async def _serve() -> None:
    """Serve until standard input closes: the end of the process that has started this one."""
    loop = asyncio.get_running_loop()
    # Bound and not listening: connections are refused, and no one else gets the port.
    refusing = socket.socket()
    refusing.bind(("127.0.0.1", 0))
    site = await loop.create_server(_Site, "127.0.0.1", 0, ssl=_tls(), backlog=4096)
    silent = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, backlog=4096)
    ports = [one.getsockname()[1] for one in (site.sockets[0], refusing, silent.sockets[0])]
    _print(ports)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line.strip() != "count":
            _Site.web = msgspec.json.decode(line, type=Web)
            continue
        _print({**_Site.counts, "cpu_seconds": round(time.process_time(), 2)})
        _Site.counts.clear()
    site.close()
    silent.close()
    refusing.close()


def _print(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(_serve())
