"""Dead-lettering of malformed entries in Redis lists."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from concurrent.futures import TimeoutError as ConfirmTimeout
from typing import Any, Final, Protocol

import msgspec

from apps.requeststore.engine.errors import RequestStoreUnavailable
from yardkit.broker.base import DEAD_QUEUE, Broker, BrokerError, Outgoing
from yardkit.broker.deadletters import dead_headers

# Names the Redis list as origin: it is no broker queue to which a letter could be returned.
HEADER_LIST: Final = "x-crawlyard-redis-list"
HEADER_PROJECT: Final = "x-crawlyard-project"
_CONFIRM_SECONDS: Final = 10.0
# Bytes of the body that are kept.
_MOST_BYTES: Final = 256 * 1024
_MOST_KEPT: Final = 10_000
_MOST_AT_ONCE: Final = 100


class DeadLetterFunction(Protocol):
    """Function that dead-letters a body. Raises ``RequestStoreUnavailable``."""

    def __call__(self, key: str, body: bytes, reason: str) -> None: ...


class BrokerDeadLetters:
    """Publishes to the platform's dead-letter queue."""

    def __init__(self, broker: Broker, *, project_id: int | None = None) -> None:
        self._broker = broker
        self._project_id = project_id

    def __call__(self, key: str, body: bytes, reason: str) -> None:
        headers: dict[str, str | int | float | bool] = {HEADER_LIST: key}
        if self._project_id is not None:
            headers[HEADER_PROJECT] = self._project_id
        message = Outgoing(
            body[:_MOST_BYTES],
            key=DEAD_QUEUE,
            message_id=f"redis-{secrets.token_hex(12)}",
            headers=dead_headers(
                headers,
                reason=f"in the Redis list {key}: {_reason(body, reason)}"[:1000],
                queue="",
                died_at=time.time(),
            ),
        )
        try:
            self._broker.publish([message]).result(_CONFIRM_SECONDS)
        except (BrokerError, ConfirmTimeout) as error:
            raise RequestStoreUnavailable(f"a dead letter could not be kept: {error}") from error


class RedisDeadLetters:
    """Pushes to the list ``<key>:dead``, newest first, while no broker is reachable."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __call__(self, key: str, body: bytes, reason: str) -> None:
        letter = {
            "reason": _reason(body, reason),
            "died_at": int(time.time() * 1000),
            "body": base64.b64encode(body[:_MOST_BYTES]).decode(),
        }
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.lpush(f"{key}:dead", msgspec.json.encode(letter))
            pipeline.ltrim(f"{key}:dead", 0, _MOST_KEPT - 1)
            pipeline.execute()


class _DeadLetter(msgspec.Struct):
    """Dead letter of ``RedisDeadLetters``; ``died_at`` in ms, body in Base64."""

    reason: str
    body: bytes
    died_at: int = 0


def forward_dead_letters(client: Any, key: str, dead_letter: DeadLetterFunction) -> None:
    """Pass dead letters of ``RedisDeadLetters`` to ``dead_letter``, a limited number for each call.

    Raises ``RequestStoreUnavailable`` and ``redis.RedisError``; the remaining letters stay.
    """
    for _ in range(_MOST_AT_ONCE):
        letter = client.lindex(f"{key}:dead", -1)
        if letter is None:
            return
        try:
            read = msgspec.json.decode(letter, type=_DeadLetter)
            dead_letter(key, read.body, read.reason)
        except msgspec.DecodeError:
            dead_letter(key, letter, "no dead letter of ours, but among them")
        client.lrem(f"{key}:dead", -1, letter)


def _reason(body: bytes, reason: str) -> str:
    if len(body) <= _MOST_BYTES:
        return reason
    digest = hashlib.sha256(body).hexdigest()[:16]
    return f"{reason}; of its {len(body)} bytes (SHA-256 {digest}...) {_MOST_BYTES} are kept"
