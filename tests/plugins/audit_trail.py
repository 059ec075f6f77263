"""Holds tests to the audit trail: what a request changes in the database stands in it.

For a test that takes ``watched`` (``pytestmark = pytest.mark.usefixtures("watched")`` for a file),
each request of Django's test clients that may change something is looked at: which tables it wrote
and which audit records it made. One that wrote and made none fails its test, unless its route is in
``QUIET``. ``tests/access/test_audited.py`` calls the routes of REST one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
# Of machines, many times a second or of no person's will: why nothing is written down.
QUIET: Final = {
    "routing-project-task": "an item of work; the ledger keeps it with every step",
    "request-finish": "requests ended by a program; the store counts them",
    "request-return": "requests given back by a program; the store keeps their tries",
    "request-take": "requests leased to a program; the store keeps the lease",
    "resource-return": "by the program that used it; the resource counts how it went",
    "source-project-acknowledge": "records were taken by a program; the queue counts them",
    "source-project-consume": "records go to a program; the queue counts them",
    "source-project-give-back": "records come back from a program; the queue counts them",
    "source-project-lease": "records go to a program; their rows say to which and until when",
    "request-list": "requests to download; the store keeps each with its story",
}
# Whose rows are no deed of a person: the sessions and guesses themselves, answers kept for repeats,
# messages on their way, what a later job works through.
PLUMBING: Final = re.compile(
    r"access_loginsession|access_auditrecord|axes_\w+|runtime_(?:idempotency|outbox)\w+|django_\w+"
)
_WRITES: Final = re.compile(
    r'^\s*(?P<verb>INSERT (?:OR \w+ )?INTO|UPDATE|DELETE FROM|REPLACE INTO)\s+(?P<table>"?\w+"?)',
    re.I,
)
# When and from where a token was last used is no change of it.
_TOUCH: Final = re.compile(r'^UPDATE "access_apitoken" SET "last_used_at"')


@dataclass
class Watched:
    """One request that may change something."""

    method: str
    path: str
    view_name: str = ""
    status: int = 0
    request_id: str = ""
    person: int | None = None
    tables: set[str] = field(default_factory=set)
    entries: list[Any] = field(default_factory=list)

    def faults(self) -> list[str]:
        """What is missing in the trail; nothing of what was refused or is quiet."""
        if not 200 <= self.status < 400 or self.view_name in QUIET:
            return []
        if self.tables and not self.entries:
            return [f"wrote {', '.join(sorted(self.tables))} and left no audit record"]
        return [fault for entry in self.entries for fault in self._faults_of(entry)]

    def _faults_of(self, entry: Any) -> list[str]:
        found = []
        if entry.request_id != self.request_id or not entry.request_id:
            found.append(f"{entry.action}: not of this request ({entry.request_id})")
        if not entry.object_type:
            found.append(f"{entry.action}: of no object")
        if not entry.actor_label:
            found.append(f"{entry.action}: of nobody")
        return found


seen: list[Watched] = []


@pytest.fixture
def watched() -> list[Watched]:
    """The requests of this test that may change something, the newest last."""
    return seen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    seen.clear()
    yield
    said = [f"{w.method} {w.path}: {fault}" for w in seen for fault in w.faults()]
    if said and "watched" in getattr(item, "fixturenames", ()):
        pytest.fail("\n".join(["the audit trail is not complete:", *said]), pytrace=False)


def pytest_configure() -> None:
    """Stand before the handler of the test clients."""
    try:
        from django.apps import apps
        from django.test.client import ClientHandler
    except ImportError:
        return
    inner: Callable[..., Any] = ClientHandler.get_response

    def get_response(self: Any, request: Any) -> Any:
        # Where an app is tried by itself there is no audit trail.
        if request.method in SAFE or not apps.is_installed("apps.access"):
            return inner(self, request)
        return _watch(inner, self, request)

    ClientHandler.get_response = get_response  # type: ignore[method-assign]


def _watch(inner: Callable[..., Any], handler: Any, request: Any) -> Any:
    from django.db import connections
    from django.db.models.signals import post_save

    from apps.access.models import AuditRecord

    one = Watched(request.method, request.path)

    def note(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        done = execute(sql, params, many, context)
        found = _WRITES.match(str(sql))
        # An UPDATE that met no row has changed nothing; of an INSERT ... RETURNING nothing is
        # counted yet.
        met = context["cursor"].rowcount != 0 or (found and found["verb"].upper() != "UPDATE")
        if found and met and not _TOUCH.match(str(sql)):
            table = found["table"].strip('"')
            if not PLUMBING.fullmatch(table):
                one.tables.add(table)
        return done

    def keep(sender: Any, instance: Any, **kwargs: Any) -> None:
        one.entries.append(instance)

    post_save.connect(keep, sender=AuditRecord, weak=False)
    try:
        with ExitStack() as stack:
            for connection in connections.all(initialized_only=True):
                stack.enter_context(connection.execute_wrapper(note))
            response = inner(handler, request)
    finally:
        post_save.disconnect(keep, sender=AuditRecord)
    match = getattr(request, "resolver_match", None)
    one.view_name = match.view_name if match is not None else ""
    one.status = response.status_code
    one.request_id = response.headers.get("X-Request-Id", "")
    one.person = getattr(getattr(request, "user", None), "pk", None)
    seen.append(one)
    return response
