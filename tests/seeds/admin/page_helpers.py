"""What the tests of the pages of frontiers share."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.access.states import Role
from apps.projects.models import Project
from apps.runtime.models import Daemon
from apps.seeds.models import Frontier, Operation, SegmentReport
from apps.seeds.services import client_of, work_on_operation
from apps.seeds.states import OperationState
from apps.seeds.stores.operations import now_ms
from tests.access.factories import enter, make_user
from yardkit.protocol import Seed, SeedFinish, SeedOutcome

DAY = 86_400_000


def person(project: Project, role: Role) -> Client:
    """Somebody with this role in the project, logged in."""
    return enter(make_user(roles={project: role}))


def address(name: str, frontier: Frontier | None = None, **query: Any) -> str:
    """Of a page or a button of a frontier."""
    pk = [] if frontier is None else [frontier.pk]
    return reverse(f"admin:seeds_frontier_{name}", args=pk, query=query)


def html_of(answer: Any) -> str:
    """The page as it is sent."""
    assert answer.status_code == 200, (answer.status_code, answer.content[:500])
    return str(answer.content.decode())


def text_of(html: str) -> str:
    """What a person reads of a page."""
    without = re.sub(r"<(script|style)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", without).split()))


def row_of(html: str, segment: int) -> str:
    """The row of a segment, as text."""
    found = re.search(rf'<tr data-segment="{segment}".*?</tr>', html, flags=re.DOTALL)
    assert found is not None, segment
    return text_of(found[0])


def said(answer: Any) -> str:
    """The messages after a button."""
    assert answer.status_code == 302, answer.content[:500]
    return " ".join(str(each) for each in get_messages(answer.wsgi_request))


def today() -> int:
    """The segment of now, by day in UTC."""
    now = now_ms()
    return now - now % DAY


def report(frontier: Frontier, segment: int, **counts: Any) -> SegmentReport:
    """What the seed service says of a segment; its books balance unless ``added`` is given."""
    kinds = ("pending", "leased", "succeeded", "failed", "ignored", "forgotten")
    values: dict[str, Any] = {"added": sum(counts.get(kind, 0) for kind in kinds)}
    values |= {"reported_at": timezone.now()} | counts
    return SegmentReport.objects.create(frontier=frontier, segment=segment, **values)


def service(**fields: Any) -> Daemon:
    """A process of the seed service that is alive."""
    values = {"kind": "seeds", "name": "one", "host": "h", "pid": 1, "boot": "b"}
    return Daemon.objects.create(**(values | {"state": "running"} | fields))


def crawl(frontier: Frontier, *names: str, outcome: SeedOutcome | None, days_ago: int = 0) -> None:
    """Seeds that were added and leased and, with an outcome, finished."""
    client = client_of(frontier, owner="run:7")
    at = now_ms() - days_ago * DAY
    client.add(Seed(f"https://host/{name}", active_at=at) for name in names)
    lease = client.lease(len(names))
    if outcome is not None:
        client.finish(
            [SeedFinish(one.segment, one.key, lease.generation, outcome) for one in lease.seeds]
        )


def run(operation: Operation) -> Operation:
    """To its end, as a worker does."""
    while work_on_operation(operation.pk, seconds=0) == OperationState.WAITING:
        pass
    operation.refresh_from_db()
    return operation
