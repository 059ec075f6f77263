"""Conversion between the port's messages and AMQP's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

import pika

from yardkit.broker.base import DEAD_QUEUE, Delivery, Outgoing, QueueSpec
from yardkit.broker.deadletters import Headers, dead_headers

# Numbers a message on its channel, to match a returned one to its publication.
_APP_ID = "crawlyard "
# pika refuses to write floating point headers and cuts those it reads to whole numbers, so they
# travel as text in a table of one.
_FLOAT = "float"


class Tag(NamedTuple):
    """Identifies a delivery for the RabbitMQ adapter."""

    generation: int
    number: int


def to_properties(message: Outgoing, number: int) -> pika.BasicProperties:
    """Return the AMQP properties of the ``number``-th message of a channel."""
    ttl = message.ttl_seconds
    return pika.BasicProperties(
        content_type=message.content_type or None,
        delivery_mode=2 if message.persistent else 1,
        priority=message.priority or None,
        expiration=None if ttl is None else str(milliseconds(ttl)),
        message_id=message.message_id or None,
        reply_to=message.reply_to or None,
        correlation_id=message.correlation_id or None,
        headers=_to_table(message.headers) if message.headers else None,
        app_id=f"{_APP_ID}{number}",
    )


def _to_table(headers: Headers) -> dict[str, object]:
    return {
        name: {_FLOAT: repr(value)} if isinstance(value, float) else value
        for name, value in headers.items()
    }


def number_of(properties: pika.BasicProperties) -> int | None:
    """Return the number written by ``to_properties``."""
    app_id = properties.app_id or ""
    number = app_id.removeprefix(_APP_ID)
    return int(number) if number != app_id and number.isdecimal() else None


def to_delivery(
    method: pika.spec.Basic.Deliver,
    properties: pika.BasicProperties,
    body: bytes,
    *,
    queue: str,
    generation: int,
) -> Delivery:
    """Convert a message received by pika to a ``Delivery``."""
    headers = properties.headers
    return Delivery(
        body,
        queue,
        method.exchange,
        method.routing_key,
        method.redelivered,
        properties.priority or 0,
        properties.message_id or "",
        properties.reply_to or "",
        properties.correlation_id or "",
        _plain_headers(headers, queue) if headers else {},
        Tag(generation, method.delivery_tag),
    )


def _plain_headers(headers: Mapping[str, object], queue: str) -> Headers:
    plain: dict[str, str | int | float | bool] = {}
    for name, value in headers.items():
        if isinstance(value, dict) and value.keys() == {_FLOAT}:
            with suppress(TypeError, ValueError):  # a table of another program
                plain[name] = float(value[_FLOAT])
        elif isinstance(value, str | int | float | bool):
            plain[name] = value
    deaths = headers.get("x-death")
    if queue != DEAD_QUEUE or not isinstance(deaths, list) or not deaths:
        return plain
    # The broker put it there, after anything we may have written: the newest death comes first.
    death = deaths[0]
    died_at = death.get("time")
    return dead_headers(
        plain,
        reason=str(death.get("reason", "")),
        queue=str(death.get("queue", "")),
        died_at=died_at.timestamp() if isinstance(died_at, datetime) else time.time(),
    )


def queue_arguments(spec: QueueSpec) -> dict[str, str | int]:
    """Return the arguments of ``queue.declare``."""
    arguments: dict[str, str | int] = {}
    if spec.max_priority:
        arguments["x-max-priority"] = spec.max_priority
    if spec.expires_seconds is not None:
        arguments["x-expires"] = max(milliseconds(spec.expires_seconds), 1)
    if spec.message_ttl_seconds is not None:
        arguments["x-message-ttl"] = milliseconds(spec.message_ttl_seconds)
    if spec.dead_letter:
        arguments["x-dead-letter-exchange"] = ""
        arguments["x-dead-letter-routing-key"] = DEAD_QUEUE
    return arguments


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
