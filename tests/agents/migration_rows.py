"""What the migrations of this app do with rows that exist: run by test_migrations.py."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import django
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

BEFORE = [("projects", "0002_default_project"), ("agents", "0001_initial")]
AFTER = [("projects", "0002_default_project"), ("agents", "0002_modes_and_history")]


def migrate(to: list[tuple[str, str]]) -> Any:
    """The models as they were then."""
    executor = MigrationExecutor(connection)
    executor.migrate(to)
    return MigrationExecutor(connection).loader.project_state(to).apps


def check() -> None:
    """On a database with nothing in it."""
    old = migrate(BEFORE)
    agents, allocations = (old.get_model("agents", each) for each in ("Agent", "Allocation"))
    agents.objects.create(agent_id="on")
    agents.objects.create(agent_id="off", enabled=False)
    project = old.get_model("projects", "Project").objects.create(name="P", slug="p")
    secret = {"cookies": {"sid": "s3cret"}, "concurrency": 8}
    allocations.objects.create(
        project=project,
        owner="run:1",
        reply_to="x",
        settings=secret,
        created_at=datetime(2026, 11, 21, tzinfo=UTC),
    )

    new = migrate(AFTER)
    modes = dict(new.get_model("agents", "Agent").objects.values_list("agent_id", "mode"))
    assert modes == {"on": "enabled", "off": "draining"}
    moved = new.get_model("agents", "Allocation").objects.get()
    assert moved.settings == {"concurrency": 8}
    assert json.loads(moved.cookies) == {"sid": "s3cret"}
    with connection.cursor() as cursor:
        cursor.execute("SELECT cookies FROM agents_allocation")
        assert "s3cret" not in cursor.fetchone()[0]

    old = migrate(BEFORE)
    assert old.get_model("agents", "Allocation").objects.get().settings == secret
    assert not old.get_model("agents", "Agent").objects.get(agent_id="off").enabled


if __name__ == "__main__":
    django.setup()
    check()
