"""Reads bodies of responses: into memory, or into a sink while they arrive."""

from __future__ import annotations

import asyncio

import aiohttp

from yardkit.content import StreamDecoder
from yardkit.fetch_failures import text_of
from yardkit.fetched import BodySink, OpenSink
from yardkit.protocol import StoredBody


class BodyTooLarge(Exception):
    """A body over the limit of its request."""


class BodyIncomplete(Exception):
    """A body that ended early: ``part`` is what came of it, if it is in memory."""

    def __init__(self, text: str, part: bytes) -> None:
        super().__init__(text)
        self.part = part


async def read_body(response: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    """Return (the body, or more than ``limit`` bytes of it, whether there is more than that).

    Raises ``BodyIncomplete``.
    """
    content = response.content
    chunks: list[bytes] = []
    size = 0
    while True:
        try:
            chunk = await content.readany()
        except aiohttp.ClientPayloadError as error:
            # What has arrived together with the end of the connection is still in the buffer.
            content.set_exception(None)  # type: ignore[arg-type]
            chunks.append(content.read_nowait())
            raise BodyIncomplete(text_of(error), b"".join(chunks)[:limit]) from error
        if not chunk:
            return b"".join(chunks), False
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            return b"".join(chunks), True


class BodyStream:
    """The rest of a body that is too long for the memory.

    Args:
        decoder: of its ``Content-Encoding``; None stores it as received.
        cuts: a body over ``limit`` is cut; else it is too large.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        open_sink: OpenSink,
        decoder: StreamDecoder | None,
        limit: int,
        *,
        cuts: bool,
    ) -> None:
        self._response = response
        self._open_sink = open_sink
        self._decoder = decoder
        self._limit = limit
        self._cuts = cuts

    async def store(self, begun: bytes) -> tuple[StoredBody, bool]:
        """Store the body that begins like this; return where it is, and whether it was cut.

        Raises ``BodyTooLarge``, ``BodyIncomplete``, ``BodyNotStored`` and ``BadContent``.
        """
        sink = self._open_sink()
        try:
            cut = await self._copy(begun, sink)
            return await sink.finish(), cut
        except BaseException:
            await sink.abort()
            raise

    async def _copy(self, begun: bytes, sink: BodySink) -> bool:
        left = self._limit
        data = begun
        while data:
            for piece in [data] if self._decoder is None else self._decoder.pieces(data):
                await sink.write(piece[:left])
                left -= len(piece)
                if left < 0:
                    if self._cuts:
                        return True
                    raise BodyTooLarge(
                        f"the body has more than the {self._limit} bytes of the request"
                    )
                # A few bytes may become many pieces.
                await asyncio.sleep(0)
            try:
                data = await self._response.content.readany()
            except aiohttp.ClientPayloadError as error:
                raise BodyIncomplete(text_of(error), b"") from error
        if self._decoder is not None:
            self._decoder.finish()
        return False
