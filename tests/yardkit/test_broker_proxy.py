"""The proxy that the tests of broken links are built on."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.yardkit.broker_proxy import Proxy

SENT = bytes(range(256)) * 200


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Before a server that sends back what it gets, until the other side has ended."""

    def echo() -> None:
        wire, _address = listener.accept()
        # The proxy resets what is still open in the end.
        with wire, contextlib.suppress(ConnectionResetError):
            while data := wire.recv(10_000):
                wire.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=echo)
        thread.start()
        with Proxy(*listener.getsockname()) as proxy:
            yield proxy
        thread.join(10)


def there_and_back(proxy: Proxy) -> float:
    """Seconds until all of it has come back as it was sent."""
    with socket.create_connection(("127.0.0.1", proxy.port)) as wire:
        wire.settimeout(20)
        began = time.monotonic()
        wire.sendall(SENT)
        found = b""
        while len(found) < len(SENT):
            found += wire.recv(len(SENT))
        assert found == SENT
        return time.monotonic() - began


def test_bytes_that_are_slow_come_whole_and_in_order(proxy: Proxy) -> None:
    rate = 200_000.0
    proxy.slow(0.1, rate)
    assert there_and_back(proxy) >= 0.2 + len(SENT) / rate


def test_bytes_that_are_not_slow_come_at_once(proxy: Proxy) -> None:
    proxy.slow(0.5, 1000.0)
    proxy.slow(0.0, float("inf"))
    assert there_and_back(proxy) < 0.5


def test_an_address_goes_by_way_of_it() -> None:
    with Proxy("127.0.0.1", 1) as proxy:
        port = proxy.port
        broker = proxy.address("amqp://a:b@host/%2F")
        database = proxy.address("postgresql://host:5432/x?sslmode=disable")
    assert broker == f"amqp://a:b@127.0.0.1:{port}/%2F"
    assert database == f"postgresql://127.0.0.1:{port}/x?sslmode=disable"
