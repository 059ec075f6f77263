"""The platform's resource pools over the broker; connected at the first lease."""

from __future__ import annotations

import asyncio

from yardkit.bridge import in_daemon_thread
from yardkit.broker import Broker, BrokerError, connect
from yardkit.protocol import LeasedResource, ResourceOutcome
from yardkit.resources import ResourceClient
from yardkit.seeds import SeedServiceAway

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_CLOSE_SECONDS = 0.3


class RemotePools:
    """One project's pools, for one execution of one run.

    Args:
        owner: holder of the leases; the platform takes them back when its run has ended.
    """

    def __init__(self, broker_url: str, project: int, token: str, *, owner: str) -> None:
        self._url = broker_url
        self._project = project
        self._token = token
        self._owner = owner
        self._lock = asyncio.Lock()
        self._broker: Broker | None = None
        self._client: ResourceClient | None = None

    async def lease(self, pool: str, *, seconds: float) -> LeasedResource:
        client = await self._connected()
        return await in_daemon_thread(client.lease, pool, seconds=seconds)

    async def give_back(self, leased: LeasedResource, outcome: ResourceOutcome, reason: str) -> str:
        client = await self._connected()
        return (await in_daemon_thread(client.give_back, leased, outcome, reason)).code

    async def _connected(self) -> ResourceClient:
        async with self._lock:
            if self._client is None:
                try:
                    self._client = await in_daemon_thread(self._connect)
                except BrokerError as error:
                    raise SeedServiceAway(f"seed service unreachable: {error}") from error
            return self._client

    def _connect(self) -> ResourceClient:
        name = f"pools-{self._owner}"
        self._broker = connect(self._url, name=name, timeout=_CONNECT_SECONDS)
        return ResourceClient(
            self._broker, self._project, self._token, owner=self._owner, timeout=_ANSWER_SECONDS
        )

    async def close(self) -> None:
        if self._broker is not None:
            await in_daemon_thread(self._broker.close, _CLOSE_SECONDS)
