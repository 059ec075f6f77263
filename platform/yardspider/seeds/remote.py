"""The seed service over the broker."""

from __future__ import annotations

import time
from collections.abc import Sequence

from yardkit.bridge import in_daemon_thread
from yardkit.broker import BadBrokerURL, Broker, BrokerError, connect
from yardkit.protocol import Seed, SeedAnswer, SeedFinish, SeedsFinished, SeedsLeased
from yardkit.seeds import SeedClient, SeedServiceAway
from yardspider.errors import RunFailed

_CONNECT_SECONDS = 30.0
_ANSWER_SECONDS = 10.0
_CLOSE_SECONDS = 0.3


class RemoteFrontier:
    """One frontier of the platform, over a connection of its own.

    Args:
        owner: holder of the leases: one execution of one run.
    """

    pause_seconds = 0.0

    def __init__(self, broker_url: str, frontier: int, token: str, *, owner: str) -> None:
        self._url = broker_url
        self._frontier = frontier
        self._token = token
        self._owner = owner
        self._broker: Broker | None = None
        self._made: SeedClient | None = None

    def now(self) -> int:
        return int(time.time() * 1000)

    async def open(self) -> None:
        try:
            await in_daemon_thread(self._connect)
        except BadBrokerURL as error:
            raise RunFailed(f"BROKER_URL: {error}") from error
        except BrokerError as error:
            raise RunFailed(f"seed service unreachable, BROKER_URL: {error}") from error

    def _connect(self) -> None:
        name = f"seeds-{self._owner}"
        self._broker = connect(self._url, name=name, timeout=_CONNECT_SECONDS)
        self._made = SeedClient(
            self._broker,
            self._frontier,
            self._token,
            owner=self._owner,
            timeout=_ANSWER_SECONDS,
            patience=0.0,
        )

    @property
    def _client(self) -> SeedClient:
        if self._made is None:
            raise SeedServiceAway("there is no connection to the broker")
        return self._made

    async def add(self, seeds: Sequence[Seed]) -> list[SeedAnswer]:
        return await in_daemon_thread(self._client.add, seeds)

    async def lease(self, limit: int, *, seconds: float, wait_seconds: float) -> SeedsLeased:
        return await in_daemon_thread(
            self._client.lease, limit, seconds=seconds, wait_seconds=wait_seconds
        )

    async def finish(self, finishes: Sequence[SeedFinish], found: Sequence[Seed]) -> SeedsFinished:
        return await in_daemon_thread(self._client.finish, finishes, found)

    async def extend(self, generation: int, *, seconds: float) -> int:
        return await in_daemon_thread(self._client.extend, generation, seconds=seconds)

    async def give_back(self, generation: int) -> int:
        return await in_daemon_thread(self._client.give_back, generation)

    async def close(self) -> None:
        if self._broker is not None:
            await in_daemon_thread(self._broker.close, _CLOSE_SECONDS)
