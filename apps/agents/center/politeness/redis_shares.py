"""Share tables of hosts in Redis."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import redis

from apps.agents.center.politeness.shares import (
    ShareGrant,
    ShareRequest,
    SharesUnavailable,
    ShareTable,
    settle_all,
)

# An exchange takes a few round trips; a center that stops in the middle of one loses the
# lock.
_LOCK_MILLISECONDS: Final = 2000
_WAIT_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.005
# A table is obsolete after the longest pause that a host can have requested.
_KEEP_SECONDS: Final = 2 * 3600
# Written only while this center holds the lock: a stalled one must not undo the others'
# changes.
_WRITE: Final = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
for i = 2, #KEYS do redis.call('set', KEYS[i], ARGV[i + 1], 'EX', ARGV[2]) end
redis.call('del', KEYS[1])
return 1
"""
_UNLOCK: Final = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
"""


class RedisShares:
    """``HostShares`` in a Redis server, by the server's clock.

    Args:
        url: REDIS_URL.
        prefix: of every key.
    """

    def __init__(self, url: str, prefix: str) -> None:
        self._client: Any = redis.Redis.from_url(
            url, socket_timeout=2.0, socket_connect_timeout=2.0
        )
        self._prefix = f"{prefix}:host:"
        self._lock = f"{prefix}:hosts:lock"
        self._write = self._client.register_script(_WRITE)
        self._unlock = self._client.register_script(_UNLOCK)
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(ShareTable).decode

    def exchange(self, center: str, asks: Sequence[ShareRequest]) -> dict[str, ShareGrant]:
        return self._settle(center, asks)

    def leave(self, center: str, hosts: Sequence[str]) -> None:
        self._settle(center, [ShareRequest(host=host) for host in hosts])

    def close(self) -> None:
        self._client.close()

    def _settle(self, center: str, asks: Sequence[ShareRequest]) -> dict[str, ShareGrant]:
        if not asks:
            return {}
        token = secrets.token_hex(8)
        try:
            self._acquire(token)
            try:
                return self._locked(center, asks, token)
            finally:
                self._unlock(keys=[self._lock], args=[token])
        except redis.RedisError as error:
            raise SharesUnavailable(f"Redis: {error}") from error

    def _acquire(self, token: str) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not self._client.set(self._lock, token, nx=True, px=_LOCK_MILLISECONDS):
            if time.monotonic() > deadline:
                raise SharesUnavailable("Redis: another center does not let go of the hosts")
            time.sleep(_POLL_SECONDS)

    def _locked(
        self, center: str, asks: Sequence[ShareRequest], token: str
    ) -> dict[str, ShareGrant]:
        keys = [self._prefix + ask.host for ask in asks]
        with self._client.pipeline(transaction=False) as pipeline:
            pipeline.time()
            pipeline.mget(keys)
            (seconds, microseconds), bodies = pipeline.execute()
        ledgers = {ask.host: self._read(body) for ask, body in zip(asks, bodies, strict=True)}
        answers = settle_all(ledgers, asks, center, seconds + microseconds / 1e6)
        written = self._write(
            keys=[self._lock, *keys],
            args=[token, _KEEP_SECONDS, *(self._encode(ledgers[ask.host]) for ask in asks)],
        )
        if not written:
            raise SharesUnavailable("Redis: the exchange took too long")
        return answers

    def _read(self, body: bytes | None) -> ShareTable:
        if body is None:
            return ShareTable()
        try:
            return self._decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # A foreign value under our key: start over instead of failing each time.
            return ShareTable()
