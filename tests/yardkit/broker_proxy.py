"""A TCP proxy whose connections a test can cut, and whose door it can shut."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from typing import Self

_READ_BYTES = 65536


class Proxy:
    """Forwards 127.0.0.1:``port`` to the given address, in one thread, without buffering."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._peers: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._inner, self._outer = socket.socketpair()
        self._is_shut = False
        self._is_frozen = False
        self._banned = b""
        self._tails: dict[socket.socket, bytes] = {}
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

    def shut(self) -> None:
        """Cut, and let nobody in."""
        self._is_shut = True
        self.cut()

    def open(self) -> None:
        self._is_shut = False

    def freeze(self, *, frozen: bool) -> None:
        """Keep connections open, but forward nothing."""
        self._is_frozen = frozen

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
                watched = [] if self._is_frozen else list(self._peers)
                with selectors.DefaultSelector() as selector:
                    for readable in (self._listener, self._inner, *watched):
                        selector.register(readable, selectors.EVENT_READ)
                    ready = [key.fileobj for key, _ in selector.select(0)]
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
                data = source.recv(_READ_BYTES)
                if data and self._is_banned(source, data):
                    self.refused += 1
                elif data:
                    target.settimeout(10)
                    target.sendall(data)
                    return
            except OSError:
                pass
            for peer in (source, target):
                self._peers.pop(peer, None)
                self._tails.pop(peer, None)
                peer.close()
