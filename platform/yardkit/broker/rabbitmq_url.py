"""Parsing of ``amqp://user:password@host:port/vhost``."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from yardkit.broker.base import BadBrokerURL
from yardkit.broker.gateway import is_own

_FORM = "use amqp://user:password@host:5672/vhost"
_PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True)
class RabbitAddress:
    """Address and login of RabbitMQ. ``repr`` and ``url`` hide the password.

    Attributes:
        own: name of a limited account, which may use only its own queues; "": any queue.
    """

    scheme: str
    host: str
    port: int
    vhost: str
    user: str
    password: str = field(repr=False)
    own: str = ""

    @property
    def url(self) -> str:
        """The URL without its password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        user, vhost = quote(self.user, safe=""), quote(self.vhost, safe="")
        return f"{self.scheme}://{user}@{host}:{self.port}/{vhost}"


def parse_rabbitmq_url(url: str) -> RabbitAddress:
    """Read an ``amqp://`` or ``amqps://`` URL; without a path the vhost is "/".

    Raises:
        BadBrokerURL: no host, a port that is none, or an option that there is none of.
    """
    parts = urlsplit(url)
    if "," in parts.netloc.rpartition("@")[2]:
        raise BadBrokerURL(f"the broker URL names several hosts, only one is supported; {_FORM}")
    try:
        port = parts.port
    except ValueError:
        raise BadBrokerURL(
            f"the port of the broker URL is no number up to 65535; {_FORM}"
        ) from None
    if parts.scheme not in _PORTS:
        raise BadBrokerURL(f"{parts.scheme}:// is not RabbitMQ; {_FORM}")
    if not parts.hostname:
        raise BadBrokerURL(f"the broker URL names no host; {_FORM}")
    if port == 0:
        raise BadBrokerURL(f"the port of the broker URL is 0; {_FORM}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    own = options.pop("own", "")
    if options or parts.fragment:
        raise BadBrokerURL(f"the broker URL has options after the vhost, there are none; {_FORM}")
    if "own=" in parts.query and not is_own(own):
        raise BadBrokerURL(f"own={own!r} in the broker URL is not run.<run>.<boot>")
    vhost = parts.path[1:]
    if "/" in vhost:
        raise BadBrokerURL(f"the vhost {vhost!r} has a slash; write it as %2F, or {_FORM}")
    return RabbitAddress(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        vhost=unquote(vhost) or "/",
        user="guest" if parts.username is None else unquote(parts.username),
        password="guest" if parts.password is None else unquote(parts.password),
        own=own,
    )
