"""What every process of the platform makes at the broker when it connects."""

from __future__ import annotations

from yardkit import topology
from yardkit.broker.base import Broker
from yardkit.broker.gateway import open_gateway


def declare_shared(broker: Broker) -> None:
    """Make what every process of the platform expects to be there. Raises ``BrokerError``."""
    broker.declare(*topology.SHARED)
    for exchange in (topology.EVENTS, topology.HEARTBEATS):
        broker.declare_exchange(exchange, "fanout")
    broker.declare_exchange(topology.LIFECYCLE, "topic")
    open_gateway(broker, *topology.FOR_RUNS)
