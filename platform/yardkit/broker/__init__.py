"""The broker port: one small interface, a SQLite-file adapter and a RabbitMQ adapter."""

from yardkit.broker.base import (
    BadBrokerURL,
    Broker,
    BrokerClosed,
    BrokerError,
    BrokerUnavailable,
    Delivery,
    MessageRefused,
    Outgoing,
    QueueDepth,
    QueueSpec,
    Subscription,
    Unroutable,
)
from yardkit.broker.drain import DRAIN_SECONDS, drain
from yardkit.broker.factory import connect

__all__ = [
    "DRAIN_SECONDS",
    "BadBrokerURL",
    "Broker",
    "BrokerClosed",
    "BrokerError",
    "BrokerUnavailable",
    "Delivery",
    "MessageRefused",
    "Outgoing",
    "QueueDepth",
    "QueueSpec",
    "Subscription",
    "Unroutable",
    "connect",
    "drain",
]
