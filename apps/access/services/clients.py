"""Where a call came from."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any, Protocol

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class HasMeta(Protocol):
    """A request of Django or of REST."""

    @property
    def META(self) -> Any:
        """Its environment."""


def client_address(request: HasMeta) -> str:
    """Of the client. What ``X-Forwarded-For`` says is in it where ``TRUSTED_PROXIES`` sent it,
    and nowhere else: the server has judged that, headers are not asked again.
    """
    return str(request.META.get("REMOTE_ADDR") or "")


def parsed_address(address: str) -> Address | None:
    """None for what is no address. A dual-stack socket writes IPv4 clients as ::ffff:10.8.0.1."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def stands_in(address: str, networks: Iterable[str | Network]) -> bool:
    """Whether the address is in one of the networks."""
    found = parsed_address(address)
    return found is not None and any(found in ipaddress.ip_network(each) for each in networks)
