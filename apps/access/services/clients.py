"""Client addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any, Protocol

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class HasMeta(Protocol):
    """Protocol of Django and DRF requests."""

    @property
    def META(self) -> Any:
        """WSGI environment."""


def client_address(request: HasMeta) -> str:
    """Return the client's address. ``X-Forwarded-For`` is already applied by the web server if
    ``TRUSTED_PROXIES`` sent it; headers are not read again.
    """
    return str(request.META.get("REMOTE_ADDR") or "")


def parsed_address(address: str) -> Address | None:
    """Parse an address; None if invalid. ::ffff:10.8.0.1 of dual-stack sockets becomes IPv4."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


def stands_in(address: str, networks: Iterable[str | Network]) -> bool:
    """Whether the address is in one of the networks."""
    parsed = parsed_address(address)
    return parsed is not None and any(
        parsed in ipaddress.ip_network(network) for network in networks
    )
