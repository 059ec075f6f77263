"""Where a rule set may have its own HTTP server (seed S2.9): not just anywhere on the host.

An editor of rules could else open any port of it, on any of its networks.
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
    """An address and the ports of it that rules may ask for, both ends included."""

    address: str
    least: int
    most: int

    def __str__(self) -> str:
        return f"{_shown(self.address)}:{self.least}-{self.most}"


# Of this host alone, and ports that need no privilege.
LOOPBACK_ONLY: Final = (Ports("127.0.0.1", 1024, MAX_PORT), Ports("::1", 1024, MAX_PORT))


def read_ports(text: str) -> Ports:
    """``0.0.0.0:8517-8526`` or ``[::]:8526``. Raises ``ValueError``, whose text says why."""
    found = _ALLOWED.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:60]!r} is not understood; use 0.0.0.0:8517-8526 or [::1]:8526")
    try:
        address = str(ipaddress.ip_address(found[1]))
    except ValueError:
        raise ValueError(f"{found[1][:60]!r} is no address") from None
    least, most = int(found[2]), int(found[3] or found[2])
    if not 1 <= least <= most <= MAX_PORT:
        raise ValueError(f"{text[:60]!r}: ports are 1 to {MAX_PORT}, the smaller one first")
    return Ports(address, least, most)


def address_of(server: Server) -> str:
    """The address as numbers; names other than localhost are looked up nowhere.

    Raises ``ValueError``, whose text says why.
    """
    bind = _LOOPBACK.get(server.bind, server.bind)
    try:
        return str(ipaddress.ip_address(bind.removeprefix("[").removesuffix("]")))
    except ValueError:
        raise ValueError(f"server.bind {server.bind!r} is no address such as 0.0.0.0") from None


def refusal(server: Server, allowed: Iterable[Ports]) -> str:
    """Why a rule set may not listen there; "" when it may."""
    try:
        address = address_of(server)
    except ValueError as error:
        return str(error)
    allowed = list(allowed)
    if any(each.address == address and each.least <= server.port <= each.most for each in allowed):
        return ""
    places = ", ".join(map(str, allowed)) or "nothing"
    return (
        f"this installation does not let rules listen on {shown(server)}; "
        f"ROUTING_SERVERS allows {places}"
    )


def shown(server: Server) -> str:
    """``0.0.0.0:8526``"""
    return f"{_shown(server.bind)}:{server.port}"


def _shown(address: str) -> str:
    return f"[{address}]" if ":" in address and not address.startswith("[") else address
