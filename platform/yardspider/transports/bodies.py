"""Fetches bodies that agents have put into the object store, and deletes them there."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from yardkit.backoff import back_off
from yardkit.object_client import (
    AddressExpired,
    ObjectClient,
    ObjectGone,
    StoreAway,
    TransferFailed,
)
from yardkit.protocol import (
    Addresses,
    DownloadResult,
    DownloadResults,
    DownloadsHeld,
    FailureKind,
    ProtocolError,
    SignedObject,
    StoredBody,
    unpack_objects,
)

log = logging.getLogger("yardspider")

# A larger body is a file.
MEMORY_BYTES: Final = 16 * 1024 * 1024
_TRANSFERS: Final = 8
# Objects with several bodies, of at most 1 MiB, that wait for the results of the others.
_JOINED_KEPT: Final = 64
# How long an unreachable store is tried.
_AWAY_SECONDS: Final = 60.0
_FIRST_RETRY_SECONDS: Final = 0.5
_LONGEST_RETRY_SECONDS: Final = 8.0
_ADDRESSES_SECONDS: Final = 10.0
# Keys of one question for addresses.
_KEYS: Final = 500
# The engine waits longer for a body that takes longer than this.
_HELD_AFTER_SECONDS: Final = 2.0
_HELD_SECONDS: Final = 30.0
REASON: Final = "its body is fetched from the object store"


class BodyFile:
    """A file without a name: it vanishes with its last user, also when the process is killed."""

    def __init__(self, folder: Path | None = None) -> None:
        with tempfile.TemporaryFile(dir=folder) as file:
            self.descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.descriptor)

    def write(self, data: bytes) -> None:
        """Append. Raises ``OSError``."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]

    def chunks(self, size: int = 1024 * 1024) -> Iterator[bytes]:
        """Yield the content from its beginning, in pieces. Raises ``OSError``."""
        position = 0
        while piece := os.pread(self.descriptor, size, position):
            yield piece
            position += len(piece)

    @property
    def size(self) -> int:
        return os.fstat(self.descriptor).st_size


class FiledResult(DownloadResult, frozen=True, array_like=True):
    """A result whose body is a file."""

    file: BodyFile | None = None


class _BadBody(TransferFailed):
    """What the store has returned is not what the agent has put there."""


class _JoinedObject:
    """An object with several bodies, which is fetched once."""

    def __init__(self, content: asyncio.Future[bytes | BodyFile]) -> None:
        self.content = content
        self.taken: set[int] = set()


class BodyFetcher:
    """Completes results whose bodies are in the object store; in the loop it was made in.

    Args:
        ask: asks the center for fresh addresses of keys; ``take_addresses`` gets the answer.
        on_ready: called when ``take_ready`` has something.
        memory_bytes: a larger body becomes a file, see ``FiledResult``; None: none does.
    """

    def __init__(
        self,
        *,
        run: int,
        ask: Callable[[list[str]], None],
        on_ready: Callable[[], None],
        memory_bytes: int | None = MEMORY_BYTES,
        folder: Path | None = None,
    ) -> None:
        self._run = run
        self._ask = ask
        self._on_ready = on_ready
        self._memory_bytes = memory_bytes
        self._folder = folder
        self._client = ObjectClient()
        self._threads = ThreadPoolExecutor(_TRANSFERS, thread_name_prefix="bodies")
        self._cleaner = ThreadPoolExecutor(2, thread_name_prefix="delete bodies")
        self._tasks: set[asyncio.Task[None]] = set()
        self._deleting: set[asyncio.Future[None]] = set()
        self._ready: list[DownloadResults | DownloadsHeld] = []
        self._awaited: dict[str, asyncio.Future[SignedObject]] = {}
        # By what a result says of it. The oldest are dropped: results of theirs were lost.
        self._joined: dict[bytes, _JoinedObject] = {}

    def take(self, message: DownloadResults) -> DownloadResults | None:
        """Return the results that are complete; fetch the bodies of the others."""
        complete = []
        for result in message.items:
            if result.stored is None or isinstance(result, FiledResult):
                complete.append(result)
                continue
            task = asyncio.ensure_future(self._complete(message.agent, result, result.stored))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return msgspec.structs.replace(message, items=complete) if complete else None

    def take_ready(self) -> list[DownloadResults | DownloadsHeld]:
        """Return what has been completed since the last call."""
        ready, self._ready = self._ready, []
        return ready

    def take_addresses(self, message: Addresses) -> None:
        """Take fresh addresses."""
        if message.error:
            log.warning("no addresses of bodies: %s", message.error)
        try:
            objects = unpack_objects(message.packed) if message.packed else []
        except ProtocolError as error:
            log.warning("%s", error)
            return
        for found in objects:
            future = self._awaited.pop(found.key, None)
            if future is not None and not future.done():
                future.set_result(found)

    async def close(self, seconds: float) -> None:
        """Delete what was fetched, for at most ``seconds``; the rest is swept by the platform."""
        for task in self._tasks:
            task.cancel()
        for joined in self._joined.values():
            joined.content.cancel()
        if self._deleting:
            await asyncio.wait(list(self._deleting), timeout=seconds)
        for pool in (self._threads, self._cleaner):
            pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    # --- one body -------------------------------------------------------------------------------

    async def _complete(self, agent: str, result: DownloadResult, stored: StoredBody) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(_HELD_AFTER_SECONDS, self._hold, result)
        fetching = asyncio.ensure_future(
            self._fetched(stored) if stored.bodies == 1 else self._part_of_joined(stored)
        )
        try:
            while not fetching.done():
                await asyncio.wait([fetching], timeout=_HELD_SECONDS / 2)
                if not fetching.done():
                    self._hold(result)
            complete = self._completed(result, fetching.result())
        except TransferFailed as error:
            log.warning("run %d: %s: no body: %s", self._run, result.url, error)
            complete = msgspec.structs.replace(
                result,
                status=0,
                stored=None,
                failure=FailureKind.BODY_STORE,
                error=f"the body was stored by the agent and cannot be read: {error}",
            )
        finally:
            timer.cancel()
            fetching.cancel()
        self._add(DownloadResults(run=self._run, agent=agent, items=[complete]))

    def _completed(self, result: DownloadResult, body: bytes | BodyFile) -> DownloadResult:
        if isinstance(body, bytes):
            return msgspec.structs.replace(result, body=body, stored=None)
        fields = {name: getattr(result, name) for name in result.__struct_fields__}
        # ``stored`` stays: it knows the size.
        return FiledResult(**fields, file=body)

    def _hold(self, result: DownloadResult) -> None:
        """Let the timeout of the request begin again."""
        items = [(result.id, result.attempt)]
        self._add(
            DownloadsHeld(run=self._run, reason=REASON, wait_seconds=_HELD_SECONDS, items=items)
        )

    def _add(self, answer: DownloadResults | DownloadsHeld) -> None:
        self._ready.append(answer)
        self._on_ready()

    async def _part_of_joined(self, stored: StoredBody) -> bytes | BodyFile:
        """Return one of several bodies of an object. Raises ``TransferFailed``."""
        joined = self._joined.get(stored.packed)
        if joined is None:
            whole = StoredBody(stored.total, stored.sha256, stored.packed)
            joined = _JoinedObject(asyncio.ensure_future(self._fetched(whole)))
            self._joined[stored.packed] = joined
            if len(self._joined) > _JOINED_KEPT:
                del self._joined[next(iter(self._joined))]
        joined.taken.add(stored.offset)
        try:
            content = await asyncio.shield(joined.content)
        except TransferFailed:
            if self._joined.get(stored.packed) is joined:
                del self._joined[stored.packed]
            raise
        if len(joined.taken) == stored.bodies:
            self._joined.pop(stored.packed, None)
        if not isinstance(content, bytes):
            raise _BadBody(f"several bodies of {stored.total} bytes")
        return content[stored.offset : stored.offset + stored.size]

    async def _fetched(self, stored: StoredBody) -> bytes | BodyFile:
        """Return the body. Raises ``TransferFailed``."""
        try:
            parts = unpack_objects(stored.packed)
        except ProtocolError as error:
            raise _BadBody(str(error)) from error
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _AWAY_SECONDS
        attempt = 0
        while True:
            attempt += 1
            try:
                body = await loop.run_in_executor(self._threads, self._read, parts, stored)
            except AddressExpired:
                if attempt > 2:
                    raise
                # Long ago, as of a paused run.
                parts = await self._fresh(parts)
            except StoreAway:
                delay = back_off(attempt, _FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
                if loop.time() + delay > deadline:
                    raise
                await asyncio.sleep(delay)
            else:
                deleting = loop.run_in_executor(self._cleaner, self._delete, parts)
                self._deleting.add(deleting)
                deleting.add_done_callback(self._deleting.discard)
                return body

    async def _fresh(self, parts: Sequence[SignedObject]) -> list[SignedObject]:
        loop = asyncio.get_running_loop()
        keys = [part.key for part in parts]
        futures = [self._awaited.setdefault(key, loop.create_future()) for key in keys]
        for first in range(0, len(keys), _KEYS):
            self._ask(keys[first : first + _KEYS])
        try:
            async with asyncio.timeout(_ADDRESSES_SECONDS):
                return [await asyncio.shield(future) for future in futures]
        except TimeoutError:
            raise StoreAway("the center gave no fresh addresses") from None

    # --- in a thread ------------------------------------------------------------------------------

    def _read(self, parts: Sequence[SignedObject], stored: StoredBody) -> bytes | BodyFile:
        if self._memory_bytes is None or stored.size <= self._memory_bytes:
            pieces: list[bytes] = []
            self._copy(parts, stored, pieces.append)
            return b"".join(pieces)
        try:
            file = BodyFile(self._folder)
            self._copy(parts, stored, file.write)
        except OSError as error:
            raise StoreAway(
                f"no room for a body of {stored.size} bytes on the run's disk:"
                f" {error.strerror or error}"
            ) from error
        return file

    def _copy(
        self, parts: Sequence[SignedObject], stored: StoredBody, write: Callable[[bytes], object]
    ) -> None:
        digest = hashlib.sha256()
        size = 0
        for part in parts:
            for piece in self._client.get(part.get):
                size += len(piece)
                if size > stored.size:
                    raise _BadBody(f"it is longer than {stored.size} bytes")
                digest.update(piece)
                write(piece)
        if digest.digest() != stored.sha256:
            raise _BadBody("its digest is not that of the body that the agent has received")

    def _delete(self, parts: Sequence[SignedObject]) -> None:
        for part in parts:
            try:
                self._client.delete(part.delete)
            except ObjectGone:
                continue
            except TransferFailed as error:
                # The platform sweeps what is left.
                log.debug("a body was not deleted: %s", error)
                return
