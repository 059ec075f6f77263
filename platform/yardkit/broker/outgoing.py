"""Validation of messages and names, shared by both adapters."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from yardkit.broker.base import Outgoing, QueueSpec

# AMQP's short strings; the SQLite adapter refuses the same, so that moving to RabbitMQ is safe.
_SHORT_STRING_BYTES = 255
_INTEGER_LIMIT = 2**63
# RabbitMQ counts lives in milliseconds and in 32 bits; this is 48 days.
_LONGEST_SECONDS = 2**22


def new_future() -> Future[None]:
    """Return a future that cannot be cancelled: the I/O thread may set it unconditionally."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


def check(messages: Sequence[Outgoing]) -> None:
    """Raise ``ValueError`` or ``TypeError`` for a message that no broker can carry."""
    for message in messages:
        if not isinstance(message.body, bytes):
            raise TypeError(f"a message body is bytes, not {type(message.body).__name__}")
        for text in (
            message.key,
            message.exchange,
            message.reply_to,
            message.message_id,
            message.correlation_id,
        ):
            if len(text) > _SHORT_STRING_BYTES or not text.isascii():
                _check_length(text)
        if not 0 <= message.priority <= 255:
            raise ValueError(f"priority {message.priority} is outside 0 to 255")
        if message.ttl_seconds is not None and not 0 <= message.ttl_seconds < _LONGEST_SECONDS:
            raise ValueError(f"ttl_seconds {message.ttl_seconds} is not in 0 to {_LONGEST_SECONDS}")
        if message.headers:
            _check_headers(message)


def check_name(kind: str, name: str) -> None:
    """Raise ``ValueError`` for an invalid name of a queue or exchange."""
    if not name or len(name.encode()) > _SHORT_STRING_BYTES:
        raise ValueError(f"{name!r} cannot name {kind}: 1 to {_SHORT_STRING_BYTES} bytes")


def check_exchange(name: str, kind: str) -> None:
    """Raise ``ValueError`` for an unsupported exchange type."""
    check_name("an exchange", name)
    if kind not in ("fanout", "topic"):
        raise ValueError(f"an exchange is fanout or topic, not {kind!r}")


def check_spec(*specs: QueueSpec) -> None:
    """Raise ``ValueError`` for an invalid queue declaration."""
    for spec in specs:
        check_name("a queue", spec.name)
        if not 0 <= spec.max_priority <= 255:
            raise ValueError(f"queue {spec.name!r}: max_priority is 0 to 255")
        for field in ("expires_seconds", "message_ttl_seconds"):
            seconds = getattr(spec, field)
            if seconds is not None and not 0.001 <= seconds < _LONGEST_SECONDS:
                raise ValueError(f"queue {spec.name!r}: {field} is 0.001 to {_LONGEST_SECONDS}")


def _check_length(text: str) -> None:
    # A lone surrogate is no UTF-8, and raises a ValueError of its own.
    if len(text.encode()) > _SHORT_STRING_BYTES:
        raise ValueError(f"{text[:20]!r}... is longer than {_SHORT_STRING_BYTES} bytes")


def _check_headers(message: Outgoing) -> None:
    for name, value in message.headers.items():
        if not isinstance(name, str):
            raise TypeError(f"header name {name!r} is no string")
        _check_length(name)
        if not isinstance(value, str | int | float | bool):
            raise TypeError(f"header {name!r} is a {type(value).__name__}, not a plain value")
        if isinstance(value, str):
            value.encode()
        if isinstance(value, int) and not -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
            raise ValueError(f"header {name!r} does not fit into 64 bits")
