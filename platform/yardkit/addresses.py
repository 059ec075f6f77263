"""Guard against SSRF: addresses that a download or an outgoing webhook may reach.

A page, a redirect or a DNS answer must not lead to internal addresses: loopback, private and
link-local networks, cloud metadata services. ``check_address`` validates a host in a URL (a name or
any spelling of an address) and gives early errors. ``is_blocked_ip`` validates the address that a
socket is about to connect to. Only the second protects: redirects and DNS rebinding happen before
it.
"""

from __future__ import annotations

import enum
import functools
import ipaddress
import re
import socket
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import idna

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str], Iterable[str]]

MAX_NAME_CHARACTERS = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")

# (network, why it is refused); the first match counts, so narrow ones come first.
_BLOCKED_V4: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(network), reason)
    for network, reason in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private network"),
        ("100.100.100.200/32", "cloud metadata service"),
        ("100.64.0.0/10", "shared address space of a provider"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "cloud metadata service"),
        ("169.254.169.254/32", "cloud metadata service"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private network"),
        ("192.0.0.192/32", "cloud metadata service"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private network"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_BLOCKED_V6: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(network), reason)
    for network, reason in (
        ("::/128", "unspecified address"),
        ("::1/128", "loopback"),
        ("::/96", "IPv4-compatible address"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discard prefix"),
        ("100:0:0:1::/64", "dummy prefix"),
        ("2001::/32", "Teredo tunnel"),
        ("2001:db8::/32", "documentation"),
        ("2001::/23", "reserved for protocols"),
        ("2002::/16", "6to4 tunnel"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fd00:ec2::254/128", "cloud metadata service"),
        ("fd20:ce::254/128", "cloud metadata service"),
        ("fc00::/7", "private network"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_TEREDO = IPv6Network("2001::/32")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_GLOBAL_V6 = IPv6Network("2000::/3")
_ISATAP_MARKS = frozenset({0x0000_5EFE, 0x0200_5EFE})
_LOOPBACK = ("127.0.0.1", "::1")


class NameUnresolved(OSError):
    """A name without an address."""


class AddressRefused(OSError):
    """A connection refused by the address guard.

    An ``OSError``, so that HTTP clients treat it as a failed connection.
    """


class AddressFault(enum.StrEnum):
    """Kind of refusal of an address."""

    NONE = ""
    MALFORMED = "malformed"
    UNRESOLVED = "unresolved"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class AddressVerdict:
    """Result of an address check: ``reason`` is "" when accepted; ``addresses`` may be connected
    to.
    """

    accepted: bool
    reason: str = ""
    addresses: list[str] = field(default_factory=list)
    problem: AddressFault = AddressFault.NONE


def _refuse(reason: str, problem: AddressFault = AddressFault.BLOCKED) -> AddressVerdict:
    return AddressVerdict(False, reason, [], problem)


def parse_networks(networks: Iterable[str | Network]) -> tuple[Network, ...]:
    """Parse networks such as "127.0.0.0/8". Raises ``ValueError`` that names the invalid one."""
    parsed: list[Network] = []
    for network in networks:
        try:
            parsed.append(ipaddress.ip_network(network, strict=False))
        except ValueError as error:
            raise ValueError(f"{network!r} is no network such as 10.1.0.0/16") from error
    return tuple(parsed)


def is_blocked_ip(ip: str | Address, allowed_networks: Sequence[str | Network] = ()) -> str | None:
    """Return why a socket must not connect to ``ip``; None when it may.

    ``allowed_networks`` override every rule. An IPv6 address that embeds an IPv4 address is judged
    as that one, too.
    """
    if isinstance(ip, str):
        try:
            ip = ipaddress.ip_address(ip)
        except ValueError:
            return "no IP address"
    return _judge(ip, tuple(allowed_networks))


def check_address(
    host: str, *, allowed_networks: Sequence[str | Network] = (), resolve: Resolve | None = None
) -> AddressVerdict:
    """Check a host of a URL: a name, or an address in any spelling.

    Args:
        host: with or without the brackets of IPv6 and a final dot.
        resolve: returns the addresses of a name, raises ``OSError`` when there are none; default:
            the system's resolver.
    """
    networks = parse_networks(allowed_networks)
    name, reason = _normalise(host)
    if reason:
        return _refuse(reason, AddressFault.MALFORMED)
    address, reason = _literal(name)
    if reason:
        return _refuse(reason, AddressFault.MALFORMED)
    if address is not None:
        blocked = _judge(address, networks)
        return _refuse(blocked) if blocked else AddressVerdict(True, "", [str(address)])
    if is_localhost(name):
        return _check_localhost(networks)
    reason = _name_problem(name)
    if reason:
        return _refuse(reason, AddressFault.MALFORMED)
    try:
        addresses = list((resolve or resolve_name)(name))
    except (OSError, UnicodeError):
        addresses = []
    return check_resolved(name, addresses, networks)


def check_resolved(
    name: str, addresses: Sequence[str], allowed_networks: Sequence[str | Network] = ()
) -> AddressVerdict:
    """Check resolved addresses: one that is blocked refuses the whole name."""
    if not addresses:
        return _refuse(f"{name} cannot be resolved", AddressFault.UNRESOLVED)
    if is_localhost(name):
        return _check_localhost(allowed_networks, addresses)
    for address in addresses:
        blocked = is_blocked_ip(address, allowed_networks)
        if blocked:
            return _refuse(f"{name} is {address}: {blocked}")
    return AddressVerdict(True, "", list(addresses))


def resolve_name(name: str) -> list[str]:
    """Return the system's addresses of a name, without duplicates. Raises ``OSError``."""
    entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def is_localhost(name: str) -> bool:
    """Return whether the name is ``localhost`` or below it, which never leaves the machine."""
    name = name.rstrip(".").lower()
    return name == "localhost" or name.endswith(".localhost")


def _check_localhost(
    allowed_networks: Sequence[str | Network], addresses: Sequence[str] = _LOOPBACK
) -> AddressVerdict:
    # Where 127.0.0.0/8 is opened, localhost means that one, though ::1 is still refused.
    usable = [item for item in addresses if is_blocked_ip(item, allowed_networks) is None]
    return AddressVerdict(True, "", usable) if usable else _refuse("loopback")


def _normalise(host: str) -> tuple[str, str]:
    """Return (host in lower-case ASCII without brackets and final dot, "") or ("", reason)."""
    if not host or not host.strip():
        return "", "empty host"
    if len(host) > 4 * MAX_NAME_CHARACTERS:
        return "", "host too long"
    if any(ord(character) < 33 or ord(character) == 127 for character in host):
        return "", "control character or blank in the host"
    if host.startswith("["):
        if not host.endswith("]") or ":" not in host:
            return "", "bad brackets"
        return host[1:-1].lower(), ""
    if ":" in host:
        return host.lower(), ""
    # Full-width digits and the like: what a browser reads as 127.0.0.1 is 127.0.0.1 here too.
    text = unicodedata.normalize("NFKC", host).replace("。", ".").lower()
    if text.endswith("."):
        text = text[:-1]
    if not text or text.startswith(".") or ".." in text or text.endswith("."):
        return "", "empty label in the host"
    if not text.isascii():
        try:
            text = idna.encode(text, uts46=True, transitional=False).decode("ascii")
        except (idna.IDNAError, UnicodeError):
            return "", "no valid international name"
    return text, ""


def _literal(name: str) -> tuple[Address | None, str]:
    """Return (address spelled by ``name``, ""), (None, "") for a name, or (None, reason)."""
    if ":" in name:
        try:
            return IPv6Address(name), ""
        except ValueError:
            return None, "no IPv6 address"
    last = name.rpartition(".")[2]
    if not _NUMERIC_LABEL.fullmatch(last):
        return None, ""
    address = _parse_ipv4(name)
    return (address, "") if address is not None else (None, "no IPv4 address")


def _parse_ipv4(text: str) -> IPv4Address | None:
    """Parse 1 to 4 parts, each decimal, octal (0...) or hexadecimal (0x...); the last fills the
    rest.
    """
    parts = text.split(".")
    if len(parts) > 4:
        return None
    numbers: list[int] = []
    for part in parts:
        if not _NUMERIC_LABEL.fullmatch(part):
            return None
        try:
            if part.startswith("0x"):
                numbers.append(int(part[2:] or "0", 16))
            elif len(part) > 1 and part.startswith("0"):
                numbers.append(int(part, 8))
            else:
                numbers.append(int(part, 10))
        except ValueError:
            return None
    if any(number > 255 for number in numbers[:-1]):
        return None
    if numbers[-1] >= 256 ** (5 - len(numbers)):
        return None
    value = numbers[-1]
    for position, number in enumerate(numbers[:-1]):
        value += number << (8 * (3 - position))
    return IPv4Address(value)


def _name_problem(name: str) -> str:
    if len(name) > MAX_NAME_CHARACTERS:
        return "host too long"
    for label in name.split("."):
        if not _LABEL.fullmatch(label):
            return f"{label[:63]!r} is no part of a host name"
    return ""


@functools.lru_cache(maxsize=4096)
def _judge(ip: Address, allowed: tuple[str | Network, ...]) -> str | None:
    networks = parse_networks(allowed)
    scoped = isinstance(ip, IPv6Address) and ip.scope_id is not None
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        return _judge(ip.ipv4_mapped, allowed)
    if not scoped and any(ip in network for network in networks):
        return None
    if isinstance(ip, IPv4Address):
        return next((reason for network, reason in _BLOCKED_V4 if ip in network), None)
    if scoped:
        return "address of one network interface"
    return _judge_v6(ip)


def _judge_v6(ip: IPv6Address) -> str | None:
    reason = next((reason for network, reason in _BLOCKED_V6 if ip in network), None)
    for kind, inner in _embedded(ip):
        blocked = _judge(inner, ())
        if blocked:
            return f"{kind} of {inner}: {blocked}"
    if reason is None and ip not in _GLOBAL_V6 and ip not in _NAT64:
        return "outside the global unicast range"
    return reason


def _embedded(ip: IPv6Address) -> list[tuple[str, IPv4Address]]:
    """Return the IPv4 addresses that a packet to ``ip`` may reach."""
    value = int(ip)
    if ip in _NAT64:
        return [("NAT64", IPv4Address(value & 0xFFFF_FFFF))]
    if ip in _SIX_TO_FOUR:
        return [("6to4", IPv4Address(value >> 80 & 0xFFFF_FFFF))]
    if ip in _TEREDO:
        server = IPv4Address(value >> 64 & 0xFFFF_FFFF)
        client = IPv4Address(~value & 0xFFFF_FFFF)
        return [("Teredo", server), ("Teredo", client)]
    if value >> 32 & 0xFFFF_FFFF in _ISATAP_MARKS:
        return [("ISATAP", IPv4Address(value & 0xFFFF_FFFF))]
    return []
