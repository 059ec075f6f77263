"""A TCP proxy whose connections a test can cut and slow down, and whose door it can shut."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Collection
from typing import Self
from urllib.parse import urlsplit, urlunsplit

_READ_BYTES = 65536
# A slow line carries small pieces, and holds so many of them on their way in each direction.
_PIECE_BYTES = 4096
_PIECES = 64
# Those that break are cut again and again, so far from each other.
_CUT_EVERY_SECONDS = 0.2
# How a line breaks.
WAYS = ("reset", "refused", "blackhole")


class Proxy:
    """Forwards ``own_host``:``port`` to the given address, in one thread.

    Nothing is held back unless it is told to be ``slow``.
    """

    def __init__(self, host: str, port: int, *, own_host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._own_host = own_host
        self._listener = socket.create_server((own_host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._peers: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._inner, self._outer = socket.socketpair()
        self._is_shut = False
        self._is_frozen = False
        self._banned = b""
        self._tails: dict[socket.socket, bytes] = {}
        self._delay_seconds = 0.0
        self._bytes_per_second = float("inf")
        # What is on its way, by where it comes from: when it arrives, and the bytes; b"" is the
        # end.
        self._on_way: dict[socket.socket, deque[tuple[float, bytes]]] = {}
        # When the line from there has sent what it was given.
        self._free_at: dict[socket.socket, float] = {}
        self.refused = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._outer.close()
        self._thread.join(10)
        self.cut()
        self._listener.close()
        self._inner.close()

    def cut(self) -> None:
        """Reset every connection, as a dying network does."""
        with self._lock:
            for peer in list(self._peers):
                with contextlib.suppress(OSError):
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.close()
            self._peers.clear()
            self._on_way.clear()
            self._free_at.clear()

    def shut(self) -> None:
        """Cut, and let nobody in."""
        self._is_shut = True
        self.cut()

    def open(self) -> None:
        self._is_shut = False

    def freeze(self, *, frozen: bool) -> None:
        """Keep connections open, but forward nothing."""
        self._is_frozen = frozen

    def slow(self, delay_seconds: float, bytes_per_second: float) -> None:
        """Bytes take so long either way, and no more of each connection pass in a second."""
        self._delay_seconds, self._bytes_per_second = delay_seconds, bytes_per_second

    def address(self, url: str) -> str:
        """The URL of what is behind it, by way of it."""
        parts = urlsplit(url)
        login = parts.netloc.rpartition("@")
        netloc = f"{''.join(login[:2])}{self._own_host}:{self.port}"
        return urlunsplit(parts._replace(netloc=netloc))

    def ban(self, words: str) -> None:
        """Cut each connection on which these words are about to pass; "" ends it."""
        self._banned = words.encode()

    def _is_banned(self, source: socket.socket, data: bytes) -> bool:
        banned = self._banned
        seen = self._tails.get(source, b"") + data
        # Words may come in two pieces.
        self._tails[source] = seen[-100:]
        return bool(banned) and banned in seen

    def _run(self) -> None:
        while True:
            with self._lock:
                watched = [] if self._is_frozen else [*filter(self._has_room, self._peers)]
                with selectors.DefaultSelector() as selector:
                    for readable in (self._listener, self._inner, *watched):
                        selector.register(readable, selectors.EVENT_READ)
                    ready = [key.fileobj for key, _ in selector.select(0)]
            if not self._is_frozen:
                self._arrive()
            if not ready:
                self._inner.settimeout(0.002)
                with contextlib.suppress(TimeoutError):
                    if not self._inner.recv(1):
                        return
                continue
            for readable in ready:
                if readable is self._inner:
                    return
                if readable is self._listener:
                    self._accept()
                elif isinstance(readable, socket.socket):
                    self._forward(readable)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._is_shut:
            self.refused += 1
            client.close()
            return
        server = socket.create_connection(self._target)
        with self._lock:
            self._peers[client] = server
            self._peers[server] = client

    def _forward(self, source: socket.socket) -> None:
        with self._lock:
            target = self._peers.get(source)
            if target is None:
                return
            try:
                data = source.recv(_PIECE_BYTES if self._delay_seconds else _READ_BYTES)
            except OSError:
                data = b""
            if data and self._is_banned(source, data):
                self.refused += 1
                self._part(source, target)
            elif self._delay_seconds or self._on_way.get(source):
                self._send_off(source, data)
            else:
                self._hand_over(source, target, data)

    def _has_room(self, source: socket.socket) -> bool:
        on_way = self._on_way.get(source, ())
        return len(on_way) < _PIECES and not (on_way and not on_way[-1][1])

    def _send_off(self, source: socket.socket, data: bytes) -> None:
        now = time.monotonic()
        sent_at = max(now, self._free_at.get(source, now)) + len(data) / self._bytes_per_second
        self._free_at[source] = sent_at
        self._on_way.setdefault(source, deque()).append((sent_at + self._delay_seconds, data))

    def _arrive(self) -> None:
        now = time.monotonic()
        with self._lock:
            for source, on_way in list(self._on_way.items()):
                target = self._peers.get(source)
                while target is not None and on_way and on_way[0][0] <= now:
                    self._hand_over(source, target, on_way.popleft()[1])
                    target = self._peers.get(source)

    def _hand_over(self, source: socket.socket, target: socket.socket, data: bytes) -> None:
        try:
            if data:
                target.settimeout(10)
                target.sendall(data)
                return
        except OSError:
            pass
        self._part(source, target)

    def _part(self, *both: socket.socket) -> None:
        for peer in both:
            self._peers.pop(peer, None)
            self._tails.pop(peer, None)
            self._on_way.pop(peer, None)
            self._free_at.pop(peer, None)
            peer.close()


def break_lines(proxies: Collection[Proxy], how: str, seconds: float) -> None:
    """For so long, in one of ``WAYS``; then all of them are whole again."""
    until = time.monotonic() + seconds
    for proxy in proxies:
        if how == "refused":
            proxy.shut()
        proxy.freeze(frozen=how == "blackhole")
    while time.monotonic() < until:
        for proxy in proxies if how == "reset" else ():
            proxy.cut()
        time.sleep(_CUT_EVERY_SECONDS)
    for proxy in proxies:
        proxy.freeze(frozen=False)
        proxy.open()


def before(url: str) -> Proxy:
    """One that forwards to the server at this address."""
    parts = urlsplit(url)
    usual = {"amqp": 5672, "postgresql": 5432, "redis": 6379}
    return Proxy(parts.hostname or "127.0.0.1", parts.port or usual[parts.scheme])
