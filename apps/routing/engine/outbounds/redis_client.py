"""Redis client with strict timeouts and without retries, and the outcomes of its errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from apps.routing.engine.outbounds.base import Encoded, Outcome, away
from apps.routing.engine.outbounds.parameters import masked

# Limits of one command, because a large command blocks the other clients of the server.
MOST_MESSAGES: Final = 500
MOST_BYTES: Final = 4 * 1024 * 1024


def connect(url: str, timeout_seconds: float, client_name: str = "") -> redis.Redis:
    """Return a client for ``url`` that connects on its first command.

    Timeouts and retries are fixed here and override options in the URL. The library's retries
    would push a message again if only the response was lost. Connecting and the response each have
    half of ``timeout_seconds``.
    """
    options: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]
    options.update(
        socket_timeout=timeout_seconds / 2,
        socket_connect_timeout=timeout_seconds / 2,
        retry=Retry(NoBackoff(), 0),
        retry_on_timeout=False,
        retry_on_error=[],
        decode_responses=False,
        encoding="utf-8",
        health_check_interval=0,
    )
    if client_name:
        # Redis rejects client names with spaces.
        options["client_name"] = "-".join(client_name.split())
    return redis.Redis.from_pool(redis.ConnectionPool(**options))


def outcome_of(error: Exception, url: str) -> Outcome:
    """Return the outcome of a Redis error: always ``away``, as no error concerns the message."""
    where = masked(url)
    if isinstance(error, redis.TimeoutError):
        return away("timeout", f"{where} does not answer in time")
    if isinstance(error, redis.AuthenticationError):
        return away("login", f"{where} refuses the login")
    if isinstance(error, redis.ResponseError):
        return away("answer", f"{where}: {error}")
    return away("unreachable", f"{where} cannot be reached: {error}")


def parts(messages: Sequence[Encoded]) -> Iterator[list[Encoded]]:
    """Split messages, in order, into parts within the limits of one command."""
    part: list[Encoded] = []
    size = 0
    for message in messages:
        if part and (len(part) >= MOST_MESSAGES or size + len(message.body) > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(message)
        size += len(message.body)
    if part:
        yield part
