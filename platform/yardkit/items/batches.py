"""Batches of items in messages: JSON lines in a zstd frame.

Each line is ``["<address of the page, or empty>", {item}]``.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import zstandard

from yardkit.nesting import MAX_DEPTH, check_json
from yardkit.protocol import MAX_ITEM_BYTES, ItemBatch, ProtocolError
from yardkit.protocol.items import BATCH_BYTES

# Fast: batches live for seconds.
_LEVEL: Final = 1
# A batch is cut before it exceeds BATCH_BYTES, unless a single item is larger.
MAX_BATCH_BYTES: Final = BATCH_BYTES + MAX_ITEM_BYTES + 1024

_encoder: Final = msgspec.json.Encoder()
_line_decoder: Final = msgspec.json.Decoder(tuple[str, msgspec.Raw])
_item_decoder: Final = msgspec.json.Decoder(dict[str, Any])


class ReadItem(msgspec.Struct, gc=False):
    """One item of a batch. ``raw`` is its JSON as it came; ``reason`` says why it is no item."""

    url: str
    raw: bytes
    data: dict[str, Any]
    reason: str = ""


def encode_line(url: str, item: dict[str, Any] | msgspec.Struct) -> bytes:
    """Return the line of an item. Raises ``TypeError`` or ``ValueError`` if it is not JSON.

    Half surrogate pairs, which UTF-8 cannot hold, become question marks; NaN and infinity null.
    """
    try:
        return _encoder.encode((url, item))
    except UnicodeEncodeError:
        line = json.dumps((url, item), ensure_ascii=False, default=msgspec.to_builtins)
        return _encoder.encode(msgspec.json.decode(line.encode("utf-8", "replace")))


def pack(lines: list[bytes]) -> tuple[bytes, int]:
    """Return the frame of some lines, and its uncompressed size."""
    text = b"\n".join(lines)
    return zstandard.ZstdCompressor(level=_LEVEL).compress(text), len(text)


def read_batch(batch: ItemBatch) -> list[ReadItem]:
    """Return the items of a batch in order; those that are no JSON objects with a reason.

    Raises ``ProtocolError`` if the frame is damaged or does not hold what the message says.
    """
    text = _unpack(batch)
    try:
        pairs = _line_decoder.decode_lines(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        lines = text.split(b"\n")
        _check_count(batch, len(lines))
        return [_read_line(line) for line in lines]
    _check_count(batch, len(pairs))
    return [_read_item(url, bytes(part)) for url, part in pairs]


def _unpack(batch: ItemBatch) -> bytes:
    if not 0 < batch.raw_bytes <= MAX_BATCH_BYTES:
        raise ProtocolError(f"a batch of {batch.raw_bytes} bytes; at most {MAX_BATCH_BYTES}")
    try:
        # The frame names its size: a larger one is refused before it is unpacked.
        declared = zstandard.frame_content_size(batch.lines)
        if declared != batch.raw_bytes:
            raise ProtocolError(
                f"a batch of {declared} bytes that is said to have {batch.raw_bytes}"
            )
        text = zstandard.ZstdDecompressor().decompress(batch.lines)
    except zstandard.ZstdError as error:
        raise ProtocolError(f"damaged batch: {error}") from error
    if len(text) != batch.raw_bytes:
        raise ProtocolError(f"a batch of {len(text)} bytes that is said to have {batch.raw_bytes}")
    return text


def _check_count(batch: ItemBatch, found: int) -> None:
    if found != batch.count:
        raise ProtocolError(f"a batch of {found} items that is said to have {batch.count}")


def _read_line(line: bytes) -> ReadItem:
    try:
        check_json(line)
        url, part = _line_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return ReadItem("", line, {}, f"not JSON: {error}")
    return _read_item(url, bytes(part))


def _read_item(url: str, raw: bytes) -> ReadItem:
    if len(raw) > MAX_ITEM_BYTES:
        return ReadItem(url, b"", {}, f"larger than {MAX_ITEM_BYTES} bytes")
    try:
        # An item with fewer brackets cannot be too deep: most cost no more than the count.
        if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
            check_json(raw)
        return ReadItem(url, raw, _item_decoder.decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return ReadItem(url, raw, {}, f"not a JSON object: {error}")
