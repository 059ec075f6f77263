"""Queues and exchanges that every process declares when it connects."""

from __future__ import annotations

from yardkit import topology
from yardkit.broker.base import Broker
from yardkit.broker.gateway import open_gateway


def declare_shared(broker: Broker) -> None:
    """Declare the shared queues and exchanges. Raises ``BrokerError``."""
    broker.declare(*topology.SHARED)
    for exchange in (topology.EVENTS, topology.HEARTBEATS):
        broker.declare_exchange(exchange, "fanout")
    broker.declare_exchange(topology.LIFECYCLE, "topic")
    open_gateway(broker, *topology.FOR_RUNS)
