"""Whose word about the client counts."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator

from crawlyard.proxies import behind_proxies


async def seen(settings: Any, *, peer: str, said: str, trusted: list[str]) -> str:
    """The client that the application is told of."""
    settings.TRUSTED_PROXIES = [ipaddress.ip_network(each) for each in trusted]
    told: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        told.append(scope["client"][0])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    scope = {
        "type": "http",
        "client": (peer, 5000),
        "scheme": "http",
        "headers": [(b"x-forwarded-for", said.encode())],
    }
    client = ApplicationCommunicator(behind_proxies(application), scope)
    await client.receive_output(1)
    await client.wait()
    return told[0]


@pytest.mark.parametrize(
    ("peer", "said", "trusted", "client"),
    [
        ("10.8.0.1", "203.0.113.5", [], "10.8.0.1"),
        ("10.8.0.1", "203.0.113.5", ["10.8.0.0/24"], "203.0.113.5"),
        ("203.0.113.9", "10.20.0.1", ["10.8.0.0/24"], "203.0.113.9"),
        # What a client wrote itself stands before what the proxies have added.
        ("10.8.0.1", "10.20.0.1, 203.0.113.5", ["10.8.0.0/24"], "203.0.113.5"),
        ("10.8.0.1", "10.20.0.1, 203.0.113.5, 10.8.0.2", ["10.8.0.0/24"], "203.0.113.5"),
        ("::1", "2001:db8::7", ["::1/128"], "2001:db8::7"),
    ],
)
async def test_only_trusted_proxies_say_who_the_client_is(
    settings: Any, peer: str, said: str, trusted: list[str], client: str
) -> None:
    assert await seen(settings, peer=peer, said=said, trusted=trusted) == client
