"""Who prepares the ledger of the bench and reads its books, in a process with settings of its own.

``python -m tools.benches.router_clerk`` reads one ``Yard`` as a line of JSON, makes tables and
rules, and says so. For each further line it answers with the books: "look" counts only, "audit"
compares them with the rows. It ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import django
import msgspec

PROJECT = "bench"
INBOUND = "logs"
# What spiders of the seed are told of a task.
TASK_PARAMS = (
    "company_name",
    "credit_no",
    "search_key",
    "province",
    "data_type",
    "detail_url",
    "metadata",
)


class Yard(msgspec.Struct):
    """The queue that items come from, what the key of each list begins with, and the selectors."""

    queue: str
    keys: str
    outbounds: list[tuple[str, list[str]]]


def rules(yard: Yard) -> dict[str, Any]:
    """The rules, as a version keeps them: stores are those of the environment."""
    return {
        "version": 1,
        "needs": 1,
        "project": PROJECT,
        "routing": {"limits": -1, "terminal_codes": [1000, 1101]},
        "inbound": [
            {
                "name": INBOUND,
                "class": "rabbitmq.RabbitInbound",
                "init": {"url": "{broker_url}", "queue": yard.queue},
                "convert": [
                    {"class": "logstash.RemoveBuildinKeys"},
                    {"class": "common.ExtractMetadata"},
                ],
            }
        ],
        "outbound": [
            {
                "name": name,
                "selector": selectors,
                "class": "redis_queue.RedisListOutbound",
                "init": {"url": "{redis_url}", "key": key_of(yard, name)},
                "task_params": list(TASK_PARAMS),
                "constants": {"task_src": 3},
                "retry_limits": 5,
            }
            for name, selectors in yard.outbounds
        ],
    }


def key_of(yard: Yard, outbound: str) -> str:
    """The list of this outbound."""
    return f"{yard.keys}{outbound}"


def prepare(yard: Yard) -> int:
    """Tables, a project and its active rules; the id of the project."""
    from django.core.management import call_command
    from django.utils import timezone

    from apps.configcenter.services import activate, save_version
    from apps.projects.models import Project

    call_command("migrate", verbosity=0, interactive=False)
    project = Project.objects.create(slug=PROJECT, name="Bench")
    now = timezone.now()
    saved = save_version(
        kind="routing", project_id=project.pk, data=rules(yard), actor=None, now=now
    )
    activate(version=saved.version, actor=None, now=now)
    return project.pk


def look(project: int, *, audited: bool) -> dict[str, Any]:
    """The books, and the processes of the server that work for others than this one."""
    from django.db import connection

    from apps.routing.models import ValuePage
    from apps.routing.queries import item_accounting, reconcile_items

    audit = reconcile_items(project) if audited else None
    found = audit.books if audit else item_accounting(project)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        backends = [pid for (pid,) in cursor.fetchall()]
    return {
        "received": found.received,
        "redelivered": found.redelivered,
        "dispatched": found.in_flight["dispatched"],
        "rejected": found.final["rejected"],
        "balanced": found.balanced,
        "holds": audit.holds if audit else None,
        "backends": backends,
        # Each batch has written one.
        "batches": ValuePage.objects.filter(project=project).count(),
    }


def main() -> None:
    """Do what the lines of the input say."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "crawlyard.settings.base")
    django.setup()
    yard = msgspec.json.decode(sys.stdin.readline(), type=Yard)
    project = prepare(yard)
    _say({"project": project})
    for line in sys.stdin:
        _say(look(project, audited=line.strip() == "audit"))


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
