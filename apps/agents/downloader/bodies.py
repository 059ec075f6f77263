"""Puts large bodies of responses into the object store, beside the broker."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, TypeVarTuple

from apps.agents.downloader.addresses import AddressBook, NoAddress
from apps.agents.downloader.vitals import AgentCounters
from yardkit.backoff import back_off
from yardkit.clock import Clock
from yardkit.fetched import BodyNotStored, BodySink
from yardkit.object_client import ObjectClient, TransferFailed, sha256_of
from yardkit.outage import Outage
from yardkit.protocol import ObjectKind, SignedObject, StoredBody, pack_objects

logger = logging.getLogger(__name__)

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

# A longer body is stored in parts of this size while it arrives, so that none is in memory whole.
PART_BYTES: Final = 8 * 1024 * 1024
# Transfers at once, and so parts in memory.
_TRANSFERS: Final = 8
# Bodies that wait for a transfer are stored as one object of about this size. Larger ones go alone.
JOINED_BYTES: Final = 1024 * 1024
_JOINED_TRANSFERS: Final = 2
# How long a body that no message could hold waits for the store.
PATIENCE_SECONDS: Final = 30.0
_FIRST_RETRY_SECONDS: Final = 0.5
_LONGEST_RETRY_SECONDS: Final = 5.0


class _JoinedBodies:
    """Bodies of one run that are stored together."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.size = 0
        self.stored: asyncio.Future[tuple[bytes, bytes]]

    def add(self, body: bytes) -> int:
        """Append a body; return where it begins."""
        offset, self.size = self.size, self.size + len(body)
        self.bodies.append(body)
        return offset


class BodyStore:
    """Stores bodies for all runs of an agent.

    After a failure the store is left alone for a moment, longer after each further one: meanwhile
    bodies that fit go through the broker at once.
    """

    def __init__(self, book: AddressBook, counters: AgentCounters, clock: Clock) -> None:
        self._book = book
        self._counters = counters
        self._clock = clock
        self._client = ObjectClient()
        self._threads = ThreadPoolExecutor(_TRANSFERS, thread_name_prefix="objects")
        self._outage = Outage(logger, "storing bodies", first=1.0, longest=15.0)
        self._away_until = float("-inf")
        self._reason = ""
        # By run: bodies that still wait, so that others may join them.
        self._joining: dict[int, _JoinedBodies] = {}
        self._turns = asyncio.Semaphore(_JOINED_TRANSFERS)

    async def store(self, run: int, body: bytes) -> StoredBody:
        """Store a whole body. Raises ``BodyNotStored``; at once while the store is away."""
        part, digest = await self._put(run, body)
        return StoredBody(len(body), digest, pack_objects([part]))

    async def store_joined(self, run: int, body: bytes) -> StoredBody:
        """Store a body, with those of the same run that wait meanwhile. Raises ``BodyNotStored``.

        An idle store takes each at once; a busy one takes fewer and larger objects.
        """
        joined = self._joining.get(run)
        if joined is None or joined.size + len(body) > JOINED_BYTES:
            if len(body) > JOINED_BYTES // 4:
                return await self.store(run, body)
            joined = self._joining[run] = _JoinedBodies()
            joined.stored = asyncio.ensure_future(self._store_all(run, joined))
        offset = joined.add(body)
        # One download that is cancelled must not cancel the others.
        digest, packed = await asyncio.shield(joined.stored)
        count = len(joined.bodies)
        return StoredBody(len(body), digest, packed, offset, joined.size, count)

    async def _store_all(self, run: int, joined: _JoinedBodies) -> tuple[bytes, bytes]:
        async with self._turns:
            if self._joining.get(run) is joined:
                del self._joining[run]
            bodies = joined.bodies
            part, digest = await self._put(run, b"".join(bodies))
            self._counters.stored += len(bodies) - 1
            return digest, pack_objects([part])

    async def store_patiently(self, run: int, body: bytes) -> StoredBody:
        """Store a body that cannot go another way: try for a while. Raises ``BodyNotStored``."""
        part, digest = await self.put_patiently(run, body)
        return StoredBody(len(body), digest, pack_objects([part]))

    def sink(self, run: int) -> BodySink:
        """Return a sink for one body."""
        return _PartedBody(self, run)

    async def put_patiently(self, run: int, body: bytes) -> tuple[SignedObject, bytes]:
        """Write one object; return it and its digest. Raises ``BodyNotStored``."""
        deadline = self._clock.monotonic() + PATIENCE_SECONDS
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._put(run, body)
            except BodyNotStored:
                delay = back_off(attempt, _FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
                if self._clock.monotonic() + delay > deadline:
                    raise
                await asyncio.sleep(delay)

    async def delete(self, part: SignedObject) -> None:
        """Delete an object. Raises ``TransferFailed``."""
        await self._in_thread(self._client.delete, part.delete)

    async def close(self) -> None:
        """End all transfers."""
        self._client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _put(self, run: int, body: bytes) -> tuple[SignedObject, bytes]:
        if self._clock.monotonic() < self._away_until:
            raise BodyNotStored(self._reason)
        try:
            part = await self._book.take(run, ObjectKind.BODIES)
        except NoAddress as error:
            raise BodyNotStored(f"no address in the object store: {error}") from error
        try:
            digest = await self._in_thread(self._written, part.put, body)
        except TransferFailed as error:
            self._reason = str(error)
            self._away_until = self._clock.monotonic() + self._outage.failed(error)
            self._counters.unstored += 1
            raise BodyNotStored(self._reason) from error
        self._outage.recovered()
        self._counters.stored += 1
        return SignedObject(part.key, get=part.get, delete=part.delete), digest

    def _written(self, address: str, body: bytes) -> bytes:
        digest = sha256_of(body)
        self._client.put(address, body, len(body), digest)
        return digest

    async def _in_thread(self, function: Callable[[*Ts], R], *arguments: *Ts) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


class _PartedBody:
    """A body of any size, as parts of ``PART_BYTES``."""

    def __init__(self, store: BodyStore, run: int) -> None:
        self._store = store
        self._run = run
        self._digest = hashlib.sha256()
        self._size = 0
        self._waiting = bytearray()
        self._parts: list[SignedObject] = []

    async def write(self, data: bytes) -> None:
        self._size += len(data)
        self._digest.update(data)
        self._waiting += data
        while len(self._waiting) >= PART_BYTES:
            part = bytes(self._waiting[:PART_BYTES])
            del self._waiting[:PART_BYTES]
            await self._flush(part)

    async def finish(self) -> StoredBody:
        if self._waiting:
            await self._flush(bytes(self._waiting))
            self._waiting.clear()
        return StoredBody(self._size, self._digest.digest(), pack_objects(self._parts))

    async def abort(self) -> None:
        for part in self._parts:
            try:
                await self._store.delete(part)
            except TransferFailed as error:
                # The sweep deletes it a day later.
                logger.info("run %d: a part of a body was not deleted: %s", self._run, error)
                return

    async def _flush(self, part: bytes) -> None:
        stored, _ = await self._store.put_patiently(self._run, part)
        self._parts.append(stored)
