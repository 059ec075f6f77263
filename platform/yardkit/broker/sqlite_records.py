"""Format of messages in the SQLite file: an envelope in MessagePack and the raw body."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from yardkit.broker.base import Delivery, Outgoing
from yardkit.broker.deadletters import dead_headers

# exchange, key, priority, message_id, reply_to, correlation_id, headers
_Envelope = tuple[str, str, int, str, str, str, dict[str, str | int | float | bool]]

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[_Envelope] = msgspec.msgpack.Decoder(_Envelope)


@dataclass(frozen=True, slots=True)
class SqliteTag:
    """Identifies a delivery for the SQLite adapter."""

    claim: int
    id: int


def pack_envelope(message: Outgoing) -> bytes:
    """Pack everything of a message except its body."""
    return _encoder.encode(
        (
            message.exchange,
            message.key,
            message.priority,
            message.message_id,
            message.reply_to,
            message.correlation_id,
            dict(message.headers),
        )
    )


def unpack(queue: str, claim: int, row: tuple[int, int, bytes, bytes]) -> Delivery:
    """Return a delivery for a row (id, redelivered, envelope, body) of ``queue``."""
    id_, redelivered, envelope, body = row
    exchange, key, priority, message_id, reply_to, correlation_id, headers = _decoder.decode(
        envelope
    )
    return Delivery(
        body,
        queue,
        exchange,
        key,
        redelivered != 0,
        priority,
        message_id,
        reply_to,
        correlation_id,
        headers,
        SqliteTag(claim, id_),
    )


def dead_letter_envelope(envelope: bytes, *, reason: str, queue: str, died_at: float) -> bytes:
    """Return the envelope with the headers of a dead letter."""
    *fields, headers = _decoder.decode(envelope)
    return _encoder.encode(
        (*fields, dead_headers(headers, reason=reason, queue=queue, died_at=died_at))
    )


def dead_letter_delivery(delivery: Delivery, *, reason: str, died_at: float) -> bytes:
    """Return the envelope of a rejected delivery for the dead-letter queue."""
    return _encoder.encode(
        (
            delivery.exchange,
            delivery.key,
            delivery.priority,
            delivery.message_id,
            delivery.reply_to,
            delivery.correlation_id,
            dead_headers(delivery.headers, reason=reason, queue=delivery.queue, died_at=died_at),
        )
    )
