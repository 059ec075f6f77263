"""A Redis client that never waits longer than its time-out, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from apps.routing.engine.outbounds.base import Encoded, Outcome, away
from apps.routing.engine.outbounds.parameters import masked

# One command carries as much at most: others use the same server meanwhile.
MOST_MESSAGES: Final = 500
MOST_BYTES: Final = 4 * 1024 * 1024


def connect(url: str, timeout_seconds: float, client_name: str = "") -> redis.Redis:
    """A client for ``url``; connects at its first command.

    The library's own time-outs may be left out or overruled in the URL, and its retries would
    push a message again whose answer was lost: both are decided here, whatever the URL says.
    Connecting and answering have half of the time each.
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
        # The server takes no blanks in it.
        options["client_name"] = "-".join(client_name.split())
    return redis.Redis.from_pool(redis.ConnectionPool(**options))


def outcome_of(error: Exception, url: str) -> Outcome:
    """Why Redis did not take something. Nothing of that is the fault of a message."""
    where = masked(url)
    if isinstance(error, redis.TimeoutError):
        return away("timeout", f"{where} does not answer in time")
    if isinstance(error, redis.AuthenticationError):
        return away("login", f"{where} refuses the login")
    if isinstance(error, redis.ResponseError):
        return away("answer", f"{where}: {error}")
    return away("unreachable", f"{where} cannot be reached: {error}")


def parts(messages: Sequence[Encoded]) -> Iterator[list[Encoded]]:
    """The messages in order, in parts that one command can carry."""
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
