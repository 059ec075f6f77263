"""Inbound for a Redis list: producers LPUSH, the inbound takes from the right end.

See ``yardkit.redis_list`` for the keys, and for the leases that let other routers recover the
items of a crashed one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from apps.routing.engine.inbounds.base import (
    BadInit,
    Context,
    Finding,
    Handle,
    InboundClosed,
    Parameter,
    Taken,
)
from apps.routing.engine.inbounds.urls import url_problem
from yardkit.backoff import Backoff
from yardkit.redis_list import REDIS_ERRORS, ListClosed, ReliableList
from yardkit.redis_server import RedisServer

DEFAULT_LEASE_SECONDS: Final = 30.0
_LEAST_LEASE_SECONDS: Final = 5.0


class RedisListInbound:
    """Inbound for a Redis list. Requires Redis 6.2 or newer."""

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
        findings = []
        problem = url_problem(init["url"], ("redis", "rediss", "unix"))
        if problem:
            findings.append(("url", Finding("bad_url", problem)))
        if not init["key"]:
            findings.append(("key", Finding("bad_parameter", "the key is empty")))
        if init.get("lease_seconds", DEFAULT_LEASE_SECONDS) < _LEAST_LEASE_SECONDS:
            text = f"a lease has at least {_LEAST_LEASE_SECONDS:g} seconds"
            findings.append(("lease_seconds", Finding("bad_parameter", text)))
        return findings

    def __init__(self, context: Context, init: Mapping[str, Any]) -> None:
        self._key: str = init["key"]
        lease_seconds = float(init.get("lease_seconds", DEFAULT_LEASE_SECONDS))
        try:
            self._server = RedisServer(init["url"], lease_seconds=lease_seconds)
        except ValueError as error:
            raise BadInit(str(error)) from None
        self._list = ReliableList(
            self._server,
            self._key,
            consumer=context.consumer,
            most_taken=context.in_flight,
            rescues=True,
        )
        self._backoff = Backoff()
        self._not_before = 0.0
        self._problem = ""
        self._closed = threading.Event()

    @property
    def problem(self) -> str:
        return self._problem

    @property
    def late(self) -> int:
        return self._list.late

    def take(self, most: int, timeout: float) -> list[Taken]:
        deadline = time.monotonic() + timeout
        while not self._closed.is_set():
            if time.monotonic() >= self._not_before:
                try:
                    values = self._list.take(most, timeout=max(0.0, deadline - time.monotonic()))
                except ListClosed:
                    break
                except REDIS_ERRORS as error:
                    self._fail(error)
                    self._not_before = time.monotonic() + self._backoff.seconds()
                else:
                    self._backoff.reset()
                    self._problem = ""
                    return [
                        Taken(
                            taken.value,
                            taken.number,
                            f"{self._key}#{taken.number}",
                            taken.redelivered,
                        )
                        for taken in values
                    ]
            now = time.monotonic()
            if now >= deadline:
                return []
            self._closed.wait(min(max(self._not_before, now), deadline) - now)
        raise InboundClosed(self._key)

    def ack(self, handles: Sequence[Handle]) -> None:
        """See ``base.Inbound``. While Redis is unreachable, acks are queued and sent later."""
        self._report(self._list.settle, handles)

    def back(self, handles: Sequence[Handle]) -> None:
        self._report(self._list.give_back, handles)

    def depth(self) -> int | None:
        try:
            return self._list.depth()
        except REDIS_ERRORS as error:
            self._fail(error)
            return None

    def check_running(self, threads: int) -> list[Finding]:
        return []

    def close(self) -> None:
        self._closed.set()
        try:
            self._list.close()
        except REDIS_ERRORS as error:
            self._fail(error)

    def _report(
        self, report: Callable[[Iterable[object]], None], handles: Sequence[Handle]
    ) -> None:
        try:
            report(handles)
        except REDIS_ERRORS as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._problem = f"Redis: {self._server.text(error)}"
