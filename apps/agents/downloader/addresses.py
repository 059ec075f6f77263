"""Signed addresses of objects that an agent may write: a small pool for each run and kind."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from yardkit import topology
from yardkit.bridge import in_daemon_thread
from yardkit.broker import Broker, BrokerClosed, BrokerError, Outgoing
from yardkit.broker.aio import AsyncSubscription, publish
from yardkit.clock import Clock
from yardkit.protocol import (
    Addresses,
    AddressesWanted,
    ObjectKind,
    ProtocolError,
    SignedObject,
    decode,
    encode,
    unpack_objects,
)

logger = logging.getLogger(__name__)

FIRST_COUNT: Final = 16
MOST_COUNT: Final = 256
# A pool that was empty again after this time asks for twice as many.
_SOON_SECONDS: Final = 10.0
# An answer that takes longer is lost, or no center is there.
ANSWER_SECONDS: Final = 5.0
# Time that must be left for a transfer; addresses with less are not used any more.
MARGIN_SECONDS: Final = 300.0
# After a refusal, such as that there is no object server.
REFUSED_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 1.0


class NoAddress(Exception):
    """No address is to be had at the moment; the text says why."""


class _Pool:
    """Addresses of one run and kind."""

    def __init__(self) -> None:
        self.objects: deque[tuple[float, SignedObject]] = deque()
        self.count = FIRST_COUNT
        # Monotonic times: of the first question that is not answered yet, of the last answer, and
        # from when on the next question may be asked.
        self.asked_at: float | None = None
        self.ask_at = float("-inf")
        self.answered_at = float("-inf")
        self.error = ""
        self.arrived = asyncio.Event()


class AddressBook:
    """Addresses from the center, asked for before they are needed.

    Belongs to the loop it was made in. ``open`` comes first.
    """

    def __init__(self, broker: Broker, agent: str, clock: Clock) -> None:
        self._broker = broker
        self._agent = agent
        self._clock = clock
        self._spec = topology.agent_addresses(agent)
        self._pools: dict[tuple[int, ObjectKind], _Pool] = {}
        self._reading: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen for answers. Idempotent. Raises ``BrokerError``."""
        if self._reading is not None:
            return
        await in_daemon_thread(self._broker.declare, self._spec)
        subscription = await AsyncSubscription.open(self._broker, self._spec.name)
        self._reading = asyncio.ensure_future(self._read(subscription))

    async def close(self) -> None:
        tasks = [*self._asking, *([self._reading] if self._reading else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, run: int) -> None:
        """Drop the addresses of a run that is released."""
        for kind in ObjectKind:
            self._pools.pop((run, kind), None)

    async def take(self, run: int, kind: ObjectKind, token: str = "") -> SignedObject:
        """Return addresses of a new object, waiting a few seconds for the center.

        With the ``token`` of a run's pages also after the run has released its agents. Raises
        ``NoAddress``; at once while the center does not answer, or refuses.
        """
        pool = self._pools.get((run, kind))
        if pool is None:
            pool = self._pools[run, kind] = _Pool()
        while True:
            now = self._clock.monotonic()
            found = self._usable(pool, now)
            if len(pool.objects) <= pool.count // 2:
                self._ask(run, kind, pool, now, token)
            if found is not None:
                return found
            if pool.error:
                raise NoAddress(pool.error)
            asked_at = pool.asked_at
            left = ANSWER_SECONDS if asked_at is None else asked_at + ANSWER_SECONDS - now
            if left <= 0:
                raise NoAddress("no center answers questions for addresses")
            pool.arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await pool.arrived.wait()
            except TimeoutError:
                raise NoAddress("no center answers questions for addresses") from None

    async def recorded(self, run: int, token: str) -> list[SignedObject]:
        """Return addresses to read all kept pages of a run. Raises ``NoAddress``."""
        pool = self._pools[run, ObjectKind.RECORDED] = _Pool()
        pool.count = 0
        try:
            self._ask(run, ObjectKind.RECORDED, pool, self._clock.monotonic(), token)
            async with asyncio.timeout(ANSWER_SECONDS):
                await pool.arrived.wait()
        except TimeoutError:
            raise NoAddress("no center answers questions for addresses") from None
        finally:
            self._pools.pop((run, ObjectKind.RECORDED), None)
        if pool.error:
            raise NoAddress(pool.error)
        return [found for _until, found in pool.objects]

    def _usable(self, pool: _Pool, now: float) -> SignedObject | None:
        while pool.objects:
            until, found = pool.objects.popleft()
            if until > now:
                return found
        return None

    def _ask(self, run: int, kind: ObjectKind, pool: _Pool, now: float, token: str) -> None:
        if now < pool.ask_at:
            return
        pool.ask_at = now + ANSWER_SECONDS
        # Of lost questions the first time stays, so that nothing waits for the next one.
        if pool.asked_at is None:
            pool.asked_at = now
            if now < pool.answered_at + _SOON_SECONDS:
                pool.count = min(2 * pool.count, MOST_COUNT)
        question = AddressesWanted(
            run=run, kind=kind, count=pool.count, agent=self._agent, token=token
        )
        task = asyncio.ensure_future(self._publish(question))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _publish(self, question: AddressesWanted) -> None:
        message = Outgoing(
            body=encode(question),
            key=topology.CENTER_ADDRESSES.name,
            ttl_seconds=ANSWER_SECONDS,
            persistent=False,
        )
        try:
            await publish(self._broker, [message])
        except BrokerError as error:
            logger.info("run %d: question for addresses not sent: %s", question.run, error)

    async def _read(self, subscription: AsyncSubscription) -> None:
        while True:
            try:
                deliveries = await subscription.take()
            except BrokerClosed:
                return
            except BrokerError as error:
                logger.warning("the queue of addresses is gone for now: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            for delivery in deliveries:
                try:
                    message = decode(delivery.body)
                    if isinstance(message, Addresses):
                        self._take_answer(message)
                except ProtocolError as error:
                    logger.warning("unreadable addresses: %s", error)
            subscription.ack(deliveries)

    def _take_answer(self, message: Addresses) -> None:
        pool = self._pools.get((message.run, message.kind))
        if pool is None:
            return
        now = self._clock.monotonic()
        if message.error and message.error != pool.error:
            logger.warning("run %d: no addresses: %s", message.run, message.error)
        pool.asked_at, pool.answered_at, pool.error = None, now, message.error
        pool.ask_at = now + REFUSED_SECONDS if message.error else now
        until = now + message.seconds - min(MARGIN_SECONDS, message.seconds / 2)
        if message.packed:
            pool.objects.extend((until, one) for one in unpack_objects(message.packed))
        pool.arrived.set()
