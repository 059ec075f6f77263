"""Items of a Redis list (seed S2.32): producers LPUSH, the inbound takes from the right.

BRPOP alone would lose what it took when the router dies. Here an item moves to a list of the
consumer's own, in the same step, and leaves that only when it is acknowledged. A consumer holds a
lease and renews it; when it ends, any other one puts the items back where they came from.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from apps.routing.engine.inbounds import redis_scripts as scripts
from apps.routing.engine.inbounds.base import (
    BadInit,
    Context,
    Finding,
    Handle,
    InboundClosed,
    Parameter,
    Taken,
)
from apps.routing.engine.inbounds.urls import url_problem, without_secrets
from yardkit.backoff import Backoff

DEFAULT_LEASE_SECONDS: Final = 30.0
_LEAST_LEASE_SECONDS: Final = 5.0
_KNOWN_MILLISECONDS: Final = 24 * 3600 * 1000
_SOCKET_SECONDS: Final = 5.0
# One wait on the server: far shorter than any lease, because what it takes needs one.
_WAIT_SECONDS: Final = 1.0
_MOST_AT_ONCE: Final = 1000


class RedisListInbound:
    """See ``base.Inbound``. Redis 6.2 or newer."""

    PARAMETERS: ClassVar[tuple[Parameter, ...]] = (
        Parameter("url", str, "redis://:password@host:6379/0", required=True, secret=True),
        Parameter("key", str, "the list", required=True),
        Parameter(
            "lease_seconds",
            float,
            "how long a consumer may be silent before others take over its items",
            default=DEFAULT_LEASE_SECONDS,
        ),
    )

    @classmethod
    def check(cls, init: Mapping[str, Any]) -> list[tuple[str, Finding]]:
        found = []
        problem = url_problem(init["url"], ("redis", "rediss", "unix"))
        if problem:
            found.append(("url", Finding("bad_url", problem)))
        if not init["key"]:
            found.append(("key", Finding("bad_parameter", "the key is empty")))
        if init.get("lease_seconds", DEFAULT_LEASE_SECONDS) < _LEAST_LEASE_SECONDS:
            text = f"a lease has at least {_LEAST_LEASE_SECONDS:g} seconds"
            found.append(("lease_seconds", Finding("bad_parameter", text)))
        return found

    def __init__(self, context: Context, init: Mapping[str, Any]) -> None:
        self._key: str = init["key"]
        self._limit = context.in_flight
        self._lease = float(init.get("lease_seconds", DEFAULT_LEASE_SECONDS))
        # A name for each life: what an earlier life of this process took is not this one's.
        self._consumer = f"{context.consumer}:{secrets.token_hex(6)}"
        self._url = init["url"]
        try:
            self._redis = redis.Redis.from_url(
                self._url,
                socket_timeout=_SOCKET_SECONDS,
                socket_connect_timeout=_SOCKET_SECONDS,
                # Our own answer to an error is to look what became of it.
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            raise BadInit(without_secrets(str(error), self._url)) from None
        self._keys = (self._key, f"{self._key}:consumers", f"{self._key}:taken:{self._consumer}")
        self._scripts = {text: self._redis.register_script(text) for text in scripts.ALL}
        # One thread at a time takes, or looks what was taken.
        self._talking = threading.Lock()
        self._state = threading.Lock()
        self._numbers = itertools.count(1)
        self._out: dict[int, bytes] = {}
        self._spare: deque[Taken] = deque()
        self._finished: Counter[bytes] = Counter()
        # After an error nobody knows what the server has done: look before anything else.
        self._unsure = False
        self._backoff = Backoff()
        self._not_before = 0.0
        self._problem = ""
        self._late = 0
        self._closed = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=f"lease of {context.name}")
        self._keeper.daemon = True
        self._keeper.start()

    @property
    def problem(self) -> str:
        return self._problem

    @property
    def late(self) -> int:
        return self._late

    def take(self, most: int, timeout: float) -> list[Taken]:
        """See ``base.Inbound``; another thread that waits here delays this one up to a second."""
        deadline = time.monotonic() + timeout
        while True:
            if self._closed.is_set():
                raise InboundClosed(self._key)
            found = self._take(most, deadline)
            left = deadline - time.monotonic()
            if found or left <= 0:
                return found
            pause = max(self._not_before - time.monotonic(), 0.0)
            if not self._room():
                pause = max(pause, 0.05)
            self._closed.wait(min(pause, left))

    def ack(self, handles: Sequence[Handle]) -> None:
        """See ``base.Inbound``. Without a server it is remembered until there is one again."""
        with self._state:
            values = [
                self._out.pop(handle)
                for handle in handles
                if isinstance(handle, int) and handle in self._out
            ]
        if not values:
            return
        try:
            removed = self._run(scripts.FINISH, *values)
        except redis.RedisError as error:
            with self._state:
                self._finished.update(values)
            self._lose(error)
        else:
            self._late += len(values) - removed

    def back(self, handles: Sequence[Handle]) -> None:
        with self._state:
            numbers = {number for number in handles if isinstance(number, int)} & self._out.keys()
            values = [self._out.pop(number) for number in sorted(numbers, reverse=True)]
        if values:
            # What the server does not hear of stays in our own list and is found there again.
            self._attempt(partial(self._run, scripts.GIVE_BACK, *values))

    def depth(self) -> int | None:
        try:
            return int(self._redis.llen(self._key)) + len(self._spare)
        except redis.RedisError as error:
            self._fail(error)
            return None

    def check_running(self, threads: int) -> list[Finding]:
        return []

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self._keeper.join(_SOCKET_SECONDS * 2)
        with self._talking:
            self._spare.clear()
            self._attempt(self._send_acks)
            if not self._finished:
                self._attempt(partial(self._run, scripts.RELEASE, self._consumer))
            self._redis.close()

    # --- the server ----------------------------------------------------------------------------

    def _take(self, most: int, deadline: float) -> list[Taken]:
        if not self._talking.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return []
        try:
            if time.monotonic() < self._not_before:
                return []
            self._attempt(self._look)
            count = min(most, self._room(), _MOST_AT_ONCE)
            if self._unsure or count < 1 or self._closed.is_set():
                return []
            if not self._spare:
                self._attempt(partial(self._fetch, count, deadline))
            found = [self._spare.popleft() for _ in range(min(count, len(self._spare)))]
            with self._state:
                self._out.update((taken.handle, taken.raw) for taken in found)  # type: ignore[misc]
            return found
        finally:
            self._talking.release()

    def _fetch(self, count: int, deadline: float) -> None:
        """Take, and wait for one if there is none."""
        milliseconds = int(self._lease * 1000)
        values = self._run(scripts.TAKE, self._consumer, milliseconds, count)
        wait = min(deadline - time.monotonic(), _WAIT_SECONDS)
        if not values and wait > 0.001:
            value = self._redis.execute_command(  # type: ignore[no-untyped-call]
                "BLMOVE", self._key, self._keys[2], "RIGHT", "LEFT", f"{wait:.3f}"
            )
            values = [value] if value is not None else []
        self._spare.extend(self._taken(value, again=False) for value in values)

    def _taken(self, value: bytes, *, again: bool) -> Taken:
        number = next(self._numbers)
        return Taken(value, number, f"{self._key}#{number}", again)

    def _look(self) -> None:
        """After an error: what our own list holds beyond what is out was taken, and not seen."""
        if not self._unsure:
            return
        self._send_acks()
        with self._state:
            known: Counter[bytes] = Counter(self._out.values()) + Counter(
                taken.raw for taken in self._spare
            )
        own: list[bytes] = self._redis.lrange(self._keys[2], 0, -1)  # type: ignore[assignment]
        for value in reversed(own):
            if known[value] > 0:
                known[value] -= 1
            else:
                self._spare.append(self._taken(value, again=True))
        self._unsure = False

    def _send_acks(self) -> None:
        """Those of which nobody knows whether the server has heard."""
        with self._state:
            finished = self._finished.copy()
            kept = Counter(value for value in self._out.values() if value in finished)
        if not finished:
            return
        kept.update(taken.raw for taken in self._spare if taken.raw in finished)
        self._run(
            scripts.FINISH_AGAIN, *(each for value in finished for each in (kept[value], value))
        )
        with self._state:
            self._finished -= finished

    def _run(self, script: str, *arguments: bytes | str | int) -> Any:
        return self._scripts[script](keys=self._keys, args=arguments)

    def _attempt(self, what: Callable[[], object]) -> None:
        """Talk to the server; an error is a problem and a pause, and never the caller's."""
        try:
            what()
        except redis.RedisError as error:
            self._lose(error)
        else:
            if not self._unsure:
                self._backoff.reset()
                self._problem = ""

    def _lose(self, error: redis.RedisError) -> None:
        self._unsure = True
        self._not_before = time.monotonic() + self._backoff.seconds()
        self._fail(error)

    def _fail(self, error: redis.RedisError) -> None:
        text = without_secrets(str(error) or type(error).__name__, self._url)
        self._problem = f"Redis: {text}"

    def _room(self) -> int:
        with self._state:
            return self._limit - len(self._out)

    def _keep(self) -> None:
        """Renew the lease, and put back what others have left, three times in a lease."""
        while True:
            with contextlib.suppress(redis.RedisError):
                # Not through ``_attempt``: it must not wait for a thread that waits for items.
                self._run(scripts.TAKE, self._consumer, int(self._lease * 1000), 0)
                prefix = f"{self._key}:taken:"
                most = _MOST_AT_ONCE
                while (
                    self._run(scripts.RECLAIM, prefix, _KNOWN_MILLISECONDS, most) >= most
                    and not self._closed.is_set()
                ):
                    pass
            if self._closed.wait(self._lease / 3):
                return
