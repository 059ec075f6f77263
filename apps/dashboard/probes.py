"""Health probes of the servers behind this web process, with a limit on how long a page waits.

Each probe runs in a thread of its own, at most once at a time: a server that hangs occupies one
thread, however often the page is opened.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

import redis
from django.conf import settings
from django.db import connection
from django.utils import timezone

from apps.joblogs.services import log_store
from apps.requeststore.stores.factory import open_node
from apps.runtime.services.objects import shared_objects
from yardkit.broker import connect
from yardkit.errors import first_line
from yardkit.objects import ObjectMissing
from yardkit.questions import Question, QuestionOutcome, read_all

# Timeout for all probes together.
PAGE_SECONDS: Final = 1.5
# Results are cached for this long, shared by all open pages.
FRESH_SECONDS: Final = 3.0
# A server that takes longer counts as slow.
SLOW_SECONDS: Final = 0.5
_REDIS_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of one probe. ``ok`` is None after a timeout.

    ``detail`` is the version or the error; ``since`` is when this process first saw this state.
    """

    ok: bool | None
    detail: str = ""
    seconds: float = 0.0
    since: datetime | None = None

    @property
    def slow(self) -> bool:
        """Whether the server responds slowly."""
        return bool(self.ok) and self.seconds >= SLOW_SECONDS


class Prober:
    """Probes servers in parallel, each in its own thread and at most once at a time."""

    def __init__(self) -> None:
        self._questions: dict[str, Question[tuple[str, float]]] = {}
        self._changes: dict[str, tuple[bool | None, datetime]] = {}
        self._lock = threading.Lock()

    def ask(
        self, questions: Mapping[str, Callable[[], str]], *, seconds: float = PAGE_SECONDS
    ) -> dict[str, ProbeResult]:
        """Return results at most 3 s old; ``ok`` is None for servers that exceed the timeout."""
        running = {name: self._question(name, ask) for name, ask in questions.items()}
        outcomes = read_all(running, seconds)
        return {name: self._dated(name, outcome) for name, outcome in outcomes.items()}

    def _question(self, name: str, ask: Callable[[], str]) -> Question[tuple[str, float]]:
        with self._lock:
            if name not in self._questions:
                self._questions[name] = Question(
                    partial(_timed, ask), fresh_seconds=FRESH_SECONDS, name=f"probe-{name}"
                )
            return self._questions[name]

    def _dated(self, name: str, outcome: QuestionOutcome[tuple[str, float]]) -> ProbeResult:
        answer = _answer(outcome)
        with self._lock:
            known = self._changes.get(name)
            if known is None or known[0] != answer.ok:
                known = self._changes[name] = answer.ok, timezone.now()
            return replace(answer, since=known[1])


def _timed(ask: Callable[[], str]) -> tuple[str, float]:
    began = time.monotonic()
    return ask(), time.monotonic() - began


def _answer(outcome: QuestionOutcome[tuple[str, float]]) -> ProbeResult:
    if outcome.value is not None:
        return ProbeResult(True, *outcome.value)
    if isinstance(outcome.error, TimeoutError) and not str(outcome.error):
        return ProbeResult(None, seconds=outcome.seconds)
    detail = first_line(outcome.error)[:300] if outcome.error else ""
    return ProbeResult(False, detail, outcome.seconds)


def database() -> str:
    """Run a query without tables; return the kind of database."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        return str(connection.vendor)
    finally:
        # The connection belongs to this thread, which ends now.
        connection.close()


def broker() -> str:
    """Open a connection of its own and return the broker's kind.

    The shared connection would wait for its reconnect.
    """
    connected = connect(settings.BROKER_URL, name="crawlyard health", timeout=5.0)
    connected.close(1.0)
    return str(settings.BROKER_URL).partition(":")[0]


def redis_server() -> str:
    """Return the version of the Redis server."""
    client = redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=_REDIS_SECONDS, socket_connect_timeout=_REDIS_SECONDS
    )
    try:
        return f"redis {client.info('server')['redis_version']}"
    finally:
        client.close()


def request_node(name: str) -> str:
    """Return kind and version of a storage node of requests."""
    with closing(open_node(name, settings.REQUESTS_NODES[name])) as node:
        health = node.health()
    return f"{health.kind} {health.version}"


def logs() -> str:
    """Return kind and version of the log store."""
    return log_store().check()


def objects() -> str:
    """Look up an object, which may be missing; return the kind of the store."""
    with suppress(ObjectMissing):
        shared_objects().head("probes/health")
    return str(settings.OBJECTS_URL).partition(":")[0]


def questions() -> dict[str, Callable[[], str]]:
    """Return a probe for each configured server, by name."""
    probes: dict[str, Callable[[], str]] = {"database": database, "broker": broker}
    if settings.REDIS_URL:
        probes["redis"] = redis_server
    for name in settings.REQUESTS_NODES:
        probes[f"requests:{name}"] = partial(request_node, name)
    probes["logs"] = logs
    probes["objects"] = objects
    return probes


_prober = Prober()


def probe() -> dict[str, ProbeResult]:
    """Probe every configured server, within two seconds."""
    return _prober.ask(questions())
