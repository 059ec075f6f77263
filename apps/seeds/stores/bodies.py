"""Encoding of the immutable part of a seed, the same in every store."""

from __future__ import annotations

from typing import Any

import msgspec

from apps.seeds.engine.seeds import ResolvedSeed

# The key is omitted if it equals the data.
_Body = tuple[str, str | None, dict[str, Any] | None]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Body)


def pack_body(seed: ResolvedSeed) -> bytes:
    """Encode key, data and ext of a seed."""
    return pack_parts(seed.key, seed.data, seed.ext)


def pack_parts(key: str, data: str, ext: dict[str, Any] | None) -> bytes:
    """Encode the body of a seed from its parts."""
    return _encoder.encode((data, None if key == data else key, ext))


def unpack_body(body: bytes) -> tuple[str, str, dict[str, Any] | None]:
    """Decode a body to key, data and ext."""
    data, key, ext = _decoder.decode(body)
    return data if key is None else key, data, ext
