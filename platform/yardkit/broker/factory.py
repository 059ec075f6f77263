"""Broker adapters by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from yardkit.broker.base import BadBrokerURL

if TYPE_CHECKING:
    from yardkit.broker.base import Broker


def connect(url: str, *, name: str, timeout: float = 10.0) -> Broker:
    """Connect to the broker at ``url``, waiting up to ``timeout`` seconds.

    ``sqlite:///path/to/file`` or ``amqp://user:password@host:port/vhost`` (``amqps://``). ``name``
    appears in the broker's list of connections.

    Raises:
        BadBrokerURL: the URL names no supported broker.
        BrokerUnavailable: no connection in time.
    """
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        from yardkit.broker.sqlite import SqliteBroker

        return SqliteBroker(url, name=name, timeout=timeout)
    if scheme in {"amqp", "amqps"}:
        from yardkit.broker.rabbitmq import RabbitBroker

        return RabbitBroker(url, name=name, timeout=timeout)
    shown = f"{scheme}://" if scheme else repr(url)
    raise BadBrokerURL(
        f"{shown} is no broker; use sqlite:///path/to/file or amqp://user:password@host:5672/vhost"
    )
