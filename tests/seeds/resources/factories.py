"""Pools and resources to test with."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from apps.projects.models import Project
from apps.seeds.engine.scores import rank
from apps.seeds.models import Resource, ResourcePool
from apps.seeds.services.resources import Leased, lease
from tests.access.factories import make_project

_numbers = count(1)
# What no page, no log line and no error may show.
PASSWORD = "hunter2-top-secret"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def make_pool(project: Project | None = None, **fields: Any) -> ResourcePool:
    """A pool without resources, of a project of its own unless given."""
    values = {"name": f"accounts{next(_numbers)}", "project": project or make_project()}
    return ResourcePool.objects.create(**(values | fields))


def make_resource(pool: ResourcePool | None = None, **fields: Any) -> Resource:
    """A free resource; its rank fits its score and its last use unless given."""
    name = fields.setdefault("name", f"account{next(_numbers):04}")
    used = fields.get("last_used_at")
    fields.setdefault("rank", rank(fields.get("score", 1.0), used and used.timestamp()))
    fields.setdefault("available_at", LONG_AGO)
    fields.setdefault("secret", json.dumps({"user": name, "password": PASSWORD}))
    return Resource.objects.create(pool=pool or make_pool(), **fields)


def take(pool: ResourcePool, now: datetime, owner: str = "run:1:a", **more: Any) -> Leased:
    """Lease one; there must be one."""
    found = lease(pool=pool, owner=owner, now=now, **more)
    assert isinstance(found, Leased), found
    return found


def after(now: datetime, seconds: float) -> datetime:
    """Later."""
    return now + timedelta(seconds=seconds)
