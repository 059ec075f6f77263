"""Decoding of ``Content-Encoding`` within an output limit."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from typing import Final

# Above this size decoding would block the event loop for some milliseconds.
_IN_THREAD_BYTES: Final = 128 * 1024
_MAX_LAYERS: Final = 3
_GZIP_WBITS: Final = 31
# zlib copies the input behind the end of each member. With all of the rest as input, a body of many
# empty members (a few bytes each) would block a thread for minutes.
_PIECE_BYTES: Final = 4096
_MAX_MEMBERS: Final = 20_000
# Decoded bytes of one piece of a stream.
_DECODED_BYTES: Final = 1024 * 1024


class BadContent(ValueError):
    """A body that does not match its ``Content-Encoding``, or an unsupported encoding."""


async def decode_content(
    raw: bytes, encoding: str, limit: int, *, partial: bool
) -> tuple[bytes, bool]:
    """Decode ``raw``; return (at most ``limit`` bytes, whether there was more).

    Args:
        partial: ``raw`` was cut, so an incomplete stream is no error.

    Raises:
        BadContent: names the encoding and the problem.
    """
    # An inner layer may be a thousand times as long as the received body.
    if len(raw) > _IN_THREAD_BYTES or "," in encoding:
        return await asyncio.to_thread(decode, raw, encoding, limit, partial=partial)
    return decode(raw, encoding, limit, partial=partial)


def decode(raw: bytes, encoding: str, limit: int, *, partial: bool) -> tuple[bytes, bool]:
    """``decode_content`` for code without an event loop."""
    layers = [name.strip().lower() for name in encoding.split(",")]
    layers = [name for name in layers if name and name != "identity"]
    if len(layers) > _MAX_LAYERS:
        raise BadContent(f"content-encoding with {len(layers)} layers")
    body, truncated = raw, False
    for layer in reversed(layers):
        if layer in ("gzip", "x-gzip"):
            body, cut = _inflate(body, layer, _GZIP_WBITS, limit, partial or truncated)
        elif layer == "deflate":
            # By the standard zlib data; many servers send the raw stream.
            wbits = zlib.MAX_WBITS if _has_zlib_header(body) else -zlib.MAX_WBITS
            body, cut = _inflate(body, layer, wbits, limit, partial or truncated)
        else:
            raise BadContent(f"content-encoding {layer[:40]!r} was not asked for")
        truncated = truncated or cut
    return body, truncated


def _has_zlib_header(body: bytes) -> bool:
    return len(body) >= 2 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0


def _inflate(body: bytes, name: str, wbits: int, limit: int, partial: bool) -> tuple[bytes, bool]:
    """Inflate up to ``limit`` bytes of all members of a gzip file."""
    output: list[bytes] = []
    size = at = members = 0
    whole = memoryview(body)
    while at < len(whole):
        inflater = zlib.decompressobj(wbits)
        members += 1
        if members > _MAX_MEMBERS:
            raise BadContent(f"content-encoding {name} of more than {_MAX_MEMBERS} members")
        while at < len(whole) and not inflater.eof:
            piece = whole[at : at + _PIECE_BYTES]
            try:
                # One byte more than allowed distinguishes "exactly full" from "too much".
                chunk = inflater.decompress(piece, limit - size + 1)
            except zlib.error as error:
                if members > 1:
                    # What follows the last member is padding, as gzip(1) treats it.
                    return b"".join(output), False
                raise BadContent(f"content-encoding {name} is broken: {error}") from error
            output.append(chunk)
            size += len(chunk)
            if size > limit:
                return b"".join(output)[:limit], True
            at += len(piece) - len(inflater.unused_data)
        if not inflater.eof and not partial:
            raise BadContent(f"content-encoding {name} is broken: it ends too early")
        if wbits != _GZIP_WBITS:
            break
    return b"".join(output), False


class StreamDecoder:
    """Decodes a body while it arrives, in pieces of at most 1 MiB."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._wbits = _GZIP_WBITS
        self._inflater: zlib._Decompress | None = None
        self._members = 0

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what the next bytes decode to. Raises ``BadContent``."""
        while data:
            if self._inflater is None:
                if self._members and self._wbits != _GZIP_WBITS:
                    return
                self._begin(data)
            inflater = self._inflater
            assert inflater is not None  # noqa: S101 - just begun
            try:
                piece = inflater.decompress(data, _DECODED_BYTES)
            except zlib.error as error:
                if self._members > 1 and not inflater.unconsumed_tail:
                    # What follows the last member is padding, as gzip(1) treats it.
                    return
                raise BadContent(f"content-encoding {self._name} is broken: {error}") from error
            if piece:
                yield piece
            data = inflater.unconsumed_tail
            if inflater.eof:
                data, self._inflater = inflater.unused_data, None

    def finish(self) -> None:
        """Raise ``BadContent`` if the stream has not ended."""
        if self._inflater is not None:
            raise BadContent(f"content-encoding {self._name} is broken: it ends too early")

    def _begin(self, data: bytes) -> None:
        self._members += 1
        if self._members > _MAX_MEMBERS:
            raise BadContent(f"content-encoding {self._name} of more than {_MAX_MEMBERS} members")
        if self._name == "deflate":
            # By the standard zlib data; many servers send the raw stream.
            self._wbits = zlib.MAX_WBITS if _has_zlib_header(data) else -zlib.MAX_WBITS
        self._inflater = zlib.decompressobj(self._wbits)


def stream_decoder(encoding: str) -> StreamDecoder | None:
    """Return a decoder of a ``Content-Encoding``; None for several layers, and unknown ones."""
    name = encoding.strip().lower()
    return StreamDecoder(name) if name in ("gzip", "x-gzip", "deflate") else None
