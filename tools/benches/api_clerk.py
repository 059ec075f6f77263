"""One installation of the bench of the lists, in a process with settings of its own.

``python -m tools.benches.api_clerk`` reads one ``Task`` as a line of JSON, adds the rows that
are missing, asks every question and answers with one line of figures for each size. What it has
added stays, so that the next start only asks.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import django
import msgspec
from django.conf import settings

if TYPE_CHECKING:
    from django.test import Client

    from tools.benches.api_questions import Question

WARM: Final = 2
USER: Final = "bench"


class Task(msgspec.Struct):
    """Rows of each list at each size, and how often every question is asked."""

    sizes: list[int]
    calls: int


def main() -> None:
    """Do what the line says."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "crawlyard.settings.web")
    django.setup()
    task = msgspec.json.decode(sys.stdin.readline(), type=Task)
    for found in measure(task):
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


def measure(task: Task) -> Any:
    """The figures of each size that is not exceeded yet; of the last one always."""
    from django.core.management import call_command

    from apps.joblogs.services import close_log_store
    from apps.jobs.models import Run
    from apps.requeststore.services.scale_advice import decide_scale
    from apps.requeststore.services.store import shared_request_store
    from tools.benches import api_rows
    from tools.benches.api_questions import questions
    from yardkit.garbage_collector import spare_the_collector

    call_command("migrate", verbosity=0, interactive=False)
    jobs = api_rows.prepare()
    clients = _clients(jobs[0].project)
    whole = task.sizes[-1]
    have = Run.objects.count()
    yard = shared_request_store()
    for size in task.sizes:
        # Smaller lists than there are cannot be measured any more.
        if size < have and size != whole:
            continue
        began = time.perf_counter()
        rows = {
            "runs": api_rows.add_runs(jobs, size, whole, _say),
            "requests": api_rows.add_requests(yard, size, whole, _say),
            "lines": api_rows.add_lines(jobs, size, whole, _say),
        }
        # As a worker does every ten seconds.
        decide_scale()
        _settle()
        filled = time.perf_counter() - began
        asked = questions(jobs, whole=whole, rows=size)
        # As run_web does.
        import_module(settings.ROOT_URLCONF)
        spare_the_collector()
        yield {
            "size": size,
            "rows": rows,
            "fill_seconds": round(filled, 1),
            "answers": [_ask(each, clients, task.calls) for each in asked],
            "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }
    close_log_store()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _settle() -> None:
    """What autovacuum does within minutes: without statistics a plan is a guess."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _clients(project: Any) -> dict[tuple[str, bool], tuple[Client, dict[str, str]]]:
    """A browser and a caller of REST for each who asks."""
    from django.test import Client

    from apps.access.models import User
    from apps.access.services import create_token, set_role
    from apps.access.states import Role
    from tools.benches.api_questions import EVERYBODY, MEMBER

    found: dict[tuple[str, bool], tuple[Client, dict[str, str]]] = {}
    for who in (EVERYBODY, MEMBER):
        name = f"{USER}-{who}"
        user = User.objects.filter(username=name).first()
        if user is None:
            make = User.objects.create_superuser if who == EVERYBODY else User.objects.create_user
            user = make(name, f"{name}@example.org", is_staff=True)
        if who == MEMBER:
            set_role(actor=None, user=user, project=project, role=Role.EDITOR)
        made = create_token(actor=user, user=user, name="bench", scopes=["*:read"])
        browser = Client(SERVER_NAME="127.0.0.1")
        browser.force_login(user)
        found[who, True] = browser, {}
        caller = Client(SERVER_NAME="127.0.0.1")
        found[who, False] = caller, {"Authorization": f"Bearer {made.secret}"}
    return found


class Statements:
    """Counts the statements of the database while it is open."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """One more, unless it only begins or ends a transaction."""
        self.count += not sql.startswith(("SAVEPOINT", "RELEASE"))
        return execute(sql, params, many, context)

    def open(self) -> AbstractContextManager[None]:
        """Count from now on."""
        from django.db import connection

        return connection.execute_wrapper(self)


def _ask(
    question: Question,
    clients: Mapping[tuple[str, bool], tuple[Client, dict[str, str]]],
    calls: int,
) -> dict[str, Any]:
    client, headers = clients[question.who, question.page]
    took: list[float] = []
    worked: list[float] = []
    most = 0
    for number in range(WARM + calls):
        address = question.address(number)
        statements = Statements()
        with statements.open():
            began, cpu = time.perf_counter(), time.process_time()
            answer = client.get(address, headers=headers)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        if answer.status_code != 200:
            raise SystemExit(f"{address}: {answer.status_code} {answer.content[:300]!r}")
        if number >= WARM:
            took.append(seconds)
            worked.append(cpu)
            most = max(most, statements.count)
    return {
        "of": question.of,
        "question": question.name,
        "as": question.who,
        "by": "page" if question.page else "REST",
        "p50_ms": round(1000 * _quantile(took, 0.5), 1),
        "p95_ms": round(1000 * _quantile(took, 0.95), 1),
        # Of this process, in which SQLite works too: on a busy machine the clock tells of others.
        "cpu_p50_ms": round(1000 * _quantile(worked, 0.5), 1),
        "cpu_p95_ms": round(1000 * _quantile(worked, 0.95), 1),
        "queries": most,
    }


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


if __name__ == "__main__":
    main()
