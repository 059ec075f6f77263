"""Settings of the router's HTTP servers."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from apps.routing.engine.servers import LOOPBACK_ONLY, Ports, read_ports
from yardkit.env import Env, EnvError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def anonymous_networks(env: Env) -> tuple[Network, ...]:
    """Return the networks whose clients may use the seed's paths without a token."""
    return networks("COMPAT_ANONYMOUS_FROM", env.list("COMPAT_ANONYMOUS_FROM", default=[]))


def networks(name: str, texts: Sequence[str]) -> tuple[Network, ...]:
    """Parse the networks in the setting ``name``."""
    try:
        return tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise EnvError(name, str(error), "use networks such as 10.8.0.0/16") from error


def routing_servers(env: Env) -> tuple[Ports, ...]:
    """Return the addresses and ports on which rules may listen."""
    texts = env.list("ROUTING_SERVERS", default=[])
    try:
        return tuple(read_ports(text) for text in texts) or LOOPBACK_ONLY
    except ValueError as error:
        raise EnvError(f"ROUTING_SERVERS: {error}") from error
