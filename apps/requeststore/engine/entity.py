"""Data of a stored request: what to download and by which rule to extract, as bytes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from apps.requeststore.engine.errors import InvalidRequest, TooLarge
from apps.requeststore.engine.limits import MAX_DATA_BYTES
from yardkit.nesting import check_json, check_msgpack

MAX_URL: Final = 8000
MAX_PRIORITY: Final = 9


class Entity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Page to download.

    ``rule``: name or number of an extraction rule. ``meta``: the producer's own data, copied into
    each record. ``depth``: number of links followed to this page.
    """

    url: str
    rule: str = ""
    method: str = "GET"
    headers: dict[str, str] = {}
    params: dict[str, str] = {}
    body: bytes = b""
    meta: dict[str, Any] = {}
    depth: int = 0


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Entity)
_json_decoder: Final = msgspec.json.Decoder(Entity)


def encode_entity(entity: Entity) -> bytes:
    """Serialize. Raises ``InvalidRequest`` (not serializable) and ``TooLarge``."""
    try:
        data = _encoder.encode(entity)
        check_msgpack(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"the request cannot be serialised: {error}") from error
    if len(data) > MAX_DATA_BYTES:
        text = f"the request has {len(data)} bytes; at most {MAX_DATA_BYTES} are stored"
        raise TooLarge(text)
    return data


def decode_entity(data: bytes) -> Entity:
    """Read MessagePack, which the platform writes, or a JSON object, which other programs may
    store.

    No MessagePack map begins with ``{``. In JSON ``body`` is Base64. Raises ``InvalidRequest``.
    """
    is_json = data.lstrip()[:1] == b"{"
    try:
        check_json(data) if is_json else check_msgpack(data)
        return _json_decoder.decode(data) if is_json else _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the data is no request of this platform: {error}") from error
