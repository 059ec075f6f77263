"""Parser of addresses such as ``https://user:password@es1:9200,es2:9200/?index=logs``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from apps.joblogs.stores.factory import BadAddress

DEFAULT_PREFIX: Final = "crawlyard-logs"
_REMEDY: Final = "write https://user:password@host:9200/?index=crawlyard-logs"
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
# Limit of the prefix of index names: 255 bytes minus 17 for the suffix.
_PREFIX: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_PORTS: Final = {"http": 9200, "https": 443}


@dataclass(frozen=True, slots=True)
class ElasticAddress:
    """Nodes, credentials and index settings of an Elasticsearch.

    ``keep_days``: age in days at which the server deletes an index; 0 for never. ``replicas``: None
    leaves it to the server.
    """

    nodes: tuple[str, ...]
    user: str = ""
    password: str = ""
    api_key: str = ""
    ca: str = ""
    prefix: str = DEFAULT_PREFIX
    shards: int = 1
    replicas: int | None = None
    keep_days: int = 0

    @property
    def shown(self) -> str:
        """Return the address without credentials."""
        return ", ".join(self.nodes)


def read_address(url: str) -> ElasticAddress:
    """Parse an address. Raises ``BadAddress``, whose text holds no password."""
    scheme, _slashes, rest = url.partition("://")
    servers = re.split(r"[/?#]", rest, maxsplit=1)[0]
    try:
        # The library does not parse brackets in a list of hosts.
        parts = urlsplit(f"{scheme}://servers{rest[len(servers) :]}")
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=False))
    except ValueError:
        raise _bad("it cannot be read as an address") from None
    if parts.scheme not in _PORTS:
        raise _bad("it is neither http:// nor https://")
    credentials, _at, hosts = servers.rpartition("@")
    user, _colon, password = credentials.partition(":")
    path = parts.path.rstrip("/")
    address = ElasticAddress(
        nodes=tuple(_node(parts.scheme, host, path) for host in hosts.split(",")),
        user=unquote(user),
        password=unquote(password),
        api_key=options.pop("api_key", ""),
        ca=options.pop("ca", ""),
        prefix=options.pop("index", DEFAULT_PREFIX),
        shards=_number(options, "shards", 1, 100) or 1,
        replicas=_number(options, "replicas", 0, 10),
        keep_days=_number(options, "keep_days", 1, 36_500) or 0,
    )
    if options:
        words = ", ".join(sorted(options))[:100]
        raise _bad(f"{words}: its options are index, shards, replicas, keep_days, ca and api_key")
    if _PREFIX.fullmatch(address.prefix) is None:
        raise _bad("index begins the names of indexes: small letters, digits, - _ and . only")
    if address.user and address.api_key:
        raise _bad("it names a user and an api_key; one of them is enough")
    return address


def _node(scheme: str, host: str, path: str) -> str:
    match = _HOST.fullmatch(host)
    if match is None or int(match[2] or 1) not in range(1, 65_536):
        raise _bad("a host with an optional port is missing between // and /")
    return f"{scheme}://{match[1]}:{int(match[2] or _PORTS[scheme])}{path}"


def _number(options: dict[str, str], name: str, least: int, most: int) -> int | None:
    text = options.pop(name, None)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or int(text[:9]) not in range(least, most + 1):
        raise _bad(f"{name} is a number from {least} to {most}")
    return int(text)


def _bad(problem: str) -> BadAddress:
    return BadAddress(f"the address of an Elasticsearch: {problem}; {_REMEDY}")
