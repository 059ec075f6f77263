"""Questions to the servers behind this web process, asked so that a page never waits long.

Each is asked in a thread of its own and at most once at a time: a server that hangs costs one
thread, however often the page is opened.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

import redis
from django.conf import settings
from django.db import connection
from django.utils import timezone

from apps.joblogs.services import log_store
from apps.requeststore.stores.opening import open_node
from yardkit.broker import connect
from yardkit.errors import first_line

# All of them together have so long to answer.
PAGE_SECONDS: Final = 1.5
# Many open pages ask often; one answer serves all of them for this long.
FRESH_SECONDS: Final = 3.0
# What takes longer is there, and slow.
SLOW_SECONDS: Final = 0.5
_REDIS_SECONDS: Final = 1.0

Question = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Answer:
    """``ok`` None: it has not answered in time. ``detail``: its version, or what is wrong.

    ``since``: when the prober first found it so.
    """

    ok: bool | None
    detail: str = ""
    seconds: float = 0.0
    since: datetime | None = None

    @property
    def slow(self) -> bool:
        """It answers, and not soon."""
        return bool(self.ok) and self.seconds >= SLOW_SECONDS


class Prober:
    """Asks questions side by side, each at most once at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[str, tuple[float, Future[Answer]]] = {}
        self._found: dict[str, tuple[bool | None, datetime]] = {}

    def ask(
        self, questions: Mapping[str, Question], *, seconds: float = PAGE_SECONDS
    ) -> dict[str, Answer]:
        """An answer to each, at most 3 s old; after ``seconds`` the rest has not answered."""
        asked = {name: self._ask(name, question) for name, question in questions.items()}
        ends = time.monotonic() + seconds
        answers = {}
        for name, (began, future) in asked.items():
            try:
                answers[name] = future.result(max(0.0, ends - time.monotonic()))
            except TimeoutError:
                answers[name] = Answer(None, seconds=time.monotonic() - began)
        return {name: self._dated(name, answer) for name, answer in answers.items()}

    def _dated(self, name: str, answer: Answer) -> Answer:
        with self._lock:
            known = self._found.get(name)
            if known is None or known[0] != answer.ok:
                known = self._found[name] = answer.ok, timezone.now()
            return replace(answer, since=known[1])

    def _ask(self, name: str, question: Question) -> tuple[float, Future[Answer]]:
        with self._lock:
            known = self._asked.get(name)
            now = time.monotonic()
            if known is not None and (not known[1].done() or now - known[0] < FRESH_SECONDS):
                return known
            future: Future[Answer] = Future()
            self._asked[name] = now, future
        # No thread pool: its threads are waited for at exit, and a server may hang for minutes.
        work = partial(_answer, question, future)
        threading.Thread(target=work, name=f"probe-{name}", daemon=True).start()
        return now, future


def _answer(question: Question, future: Future[Answer]) -> None:
    began = time.monotonic()
    try:
        told = question()
        future.set_result(Answer(True, told, time.monotonic() - began))
    except Exception as error:  # noqa: BLE001 - whatever it is, the page says so
        future.set_result(Answer(False, first_line(error)[:300], time.monotonic() - began))


def database() -> str:
    """Its kind, after a question that reads nothing."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        return str(connection.vendor)
    finally:
        # Of this thread, which ends now.
        connection.close()


def broker() -> str:
    """Its kind, after a connection of our own: the shared one would wait for its return."""
    connected = connect(settings.BROKER_URL, name="crawlyard health", timeout=5.0)
    connected.close(1.0)
    return str(settings.BROKER_URL).partition(":")[0]


def redis_server() -> str:
    """Its version."""
    client = redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=_REDIS_SECONDS,
        socket_connect_timeout=_REDIS_SECONDS,
    )
    try:
        return f"redis {client.info('server')['redis_version']}"
    finally:
        client.close()


def request_node(name: str) -> str:
    """Kind and version of a storage node of requests."""
    with closing(open_node(name, settings.REQUESTS_NODES[name])) as node:
        health = node.health()
    return f"{health.kind} {health.version}"


def logs() -> str:
    """Kind and version of the store of log lines."""
    return log_store().check()


def questions() -> dict[str, Question]:
    """One for each server that this installation names."""
    asked: dict[str, Question] = {"database": database, "broker": broker}
    if settings.REDIS_URL:
        asked["redis"] = redis_server
    for name in settings.REQUESTS_NODES:
        asked[f"requests:{name}"] = partial(request_node, name)
    asked["logs"] = logs
    return asked


_prober = Prober()


def probe() -> dict[str, Answer]:
    """What every server says, within two seconds."""
    return _prober.ask(questions())
