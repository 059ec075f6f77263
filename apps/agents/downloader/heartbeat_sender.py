"""Registration and heartbeats of an agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from apps.agents.downloader.vitals import AgentVitals
from yardkit import topology
from yardkit.broker import Broker, BrokerClosed, Outgoing
from yardkit.broker.aio import publish
from yardkit.outage import Outage
from yardkit.protocol import Heartbeat, encode

logger = logging.getLogger(__name__)

# Limit of the confirm of a heartbeat; the next one is due then.
CONFIRM_SECONDS = 5.0


class HeartbeatSender:
    """Registers an agent and sends its heartbeats.

    Args:
        heartbeat: returns the next heartbeat.
    """

    def __init__(
        self, broker: Broker, vitals: AgentVitals, heartbeat: Callable[[], Heartbeat]
    ) -> None:
        self._broker = broker
        self._vitals = vitals
        self._heartbeat = heartbeat

    async def register(self) -> None:
        """Register; at the start. Raises ``BrokerError``."""
        body = encode(self._vitals.register())
        await publish(self._broker, [Outgoing(body=body, key=topology.CENTER_REGISTER.name)])

    async def keep_beating(self) -> None:
        """Send a heartbeat every 5 s; failures are logged once, and the next one is tried."""
        outage = Outage(logger, "sending heartbeats")
        while True:
            try:
                async with asyncio.timeout(CONFIRM_SECONDS):
                    await self._beat()
            except BrokerClosed:
                return
            except Exception as error:  # noqa: BLE001 - nothing may end this loop; logged once
                outage.failed(error)
            else:
                outage.recovered()
            await asyncio.sleep(topology.HEARTBEAT_SECONDS)

    async def _beat(self) -> None:
        message = Outgoing(
            body=encode(self._heartbeat()),
            key="",
            exchange=topology.HEARTBEATS,
            ttl_seconds=topology.AGENT_ALIVE_SECONDS,
            persistent=False,
            # Without a center there is no queue, which is no failure of the agent.
            mandatory=False,
        )
        await publish(self._broker, [message])
