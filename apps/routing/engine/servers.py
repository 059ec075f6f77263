"""Allow-list of listen addresses for the HTTP server of a rule set.

Without it, a user who may edit rules could open any port on any network interface of the host.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from apps.routing.engine.files.ruleset import MAX_PORT
from apps.routing.engine.rules import Server

_ALLOWED: Final = re.compile(r"\[?([0-9A-Fa-f:.]+?)\]?:([0-9]{1,5})(?:-([0-9]{1,5}))?")
_LOOPBACK: Final = {"localhost": "127.0.0.1"}


@dataclass(frozen=True, slots=True)
class Ports:
    """IP address and the range of ports on it that rules may use; both ends are included."""

    address: str
    least: int
    most: int

    def __str__(self) -> str:
        return f"{_shown(self.address)}:{self.least}-{self.most}"


# Loopback addresses with unprivileged ports.
LOOPBACK_ONLY: Final = (Ports("127.0.0.1", 1024, MAX_PORT), Ports("::1", 1024, MAX_PORT))


def read_ports(text: str) -> Ports:
    """Parse ``0.0.0.0:8517-8526`` or ``[::]:8526``.

    Raises ``ValueError`` with a readable reason.
    """
    matched = _ALLOWED.fullmatch(text)
    if matched is None:
        raise ValueError(f"{text[:60]!r} is not understood; use 0.0.0.0:8517-8526 or [::1]:8526")
    try:
        address = str(ipaddress.ip_address(matched[1]))
    except ValueError:
        raise ValueError(f"{matched[1][:60]!r} is no address") from None
    least, most = int(matched[2]), int(matched[3] or matched[2])
    if not 1 <= least <= most <= MAX_PORT:
        raise ValueError(f"{text[:60]!r}: ports are 1 to {MAX_PORT}, the smaller one first")
    return Ports(address, least, most)


def address_of(server: Server) -> str:
    """Return the numeric IP address of a server; no name but ``localhost`` is resolved.

    Raises ``ValueError`` with a readable reason.
    """
    bind = _LOOPBACK.get(server.bind, server.bind)
    try:
        return str(ipaddress.ip_address(bind.removeprefix("[").removesuffix("]")))
    except ValueError:
        raise ValueError(f"server.bind {server.bind!r} is no address such as 0.0.0.0") from None


def refusal(server: Server, allowed: Iterable[Ports]) -> str:
    """Return why a rule set may not listen on this address; "" if it may."""
    try:
        address = address_of(server)
    except ValueError as error:
        return str(error)
    allowed = list(allowed)
    if any(
        allowed_range.address == address
        and allowed_range.least <= server.port <= allowed_range.most
        for allowed_range in allowed
    ):
        return ""
    places = ", ".join(map(str, allowed)) or "nothing"
    return (
        f"this installation does not let rules listen on {shown(server)}; "
        f"ROUTING_SERVERS allows {places}"
    )


def shown(server: Server) -> str:
    """Format the listen address, such as ``0.0.0.0:8526``."""
    return f"{_shown(server.bind)}:{server.port}"


def _shown(address: str) -> str:
    return f"[{address}]" if ":" in address and not address.startswith("[") else address
