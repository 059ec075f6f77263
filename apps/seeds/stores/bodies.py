"""What of a seed never changes, as bytes: the same in every store."""

from __future__ import annotations

from typing import Any

import msgspec

from apps.seeds.engine.seeds import ResolvedSeed

# The key only where it is not the data itself.
_Body = tuple[str, str | None, dict[str, Any] | None]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Body)


def pack_body(seed: ResolvedSeed) -> bytes:
    """Key, data and ext of a seed."""
    key = None if seed.key == seed.data else seed.key
    return _encoder.encode((seed.data, key, seed.ext))


def unpack_body(body: bytes) -> tuple[str, str, dict[str, Any] | None]:
    """Key, data, ext."""
    data, key, ext = _decoder.decode(body)
    return data if key is None else key, data, ext
