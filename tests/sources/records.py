"""Factories of projects with sources, and of queued records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from django.test import override_settings
from django.utils import timezone

from apps.configcenter.services import activate, save_version
from apps.projects.models import Project
from apps.runtime.services import close_shared_broker, shared_broker
from apps.sources.engine.records import EXPIRES_AT
from apps.sources.models import RecordQueue
from apps.sources.services.queues import claim_queue, note_published
from tests.access.factories import make_project
from yardkit.broker.base import Outgoing, QueueSpec

# A JSON API without credentials.
API: dict[str, Any] = {"kind": "json", "base_url": "https://records.example/api"}
SOURCES: dict[str, Any] = {
    "news": {"task_id": "t-1", "date_field": "date"},
    "prices": {"task_id": "t-2", "enabled": False},
}


def sourced(project: Project | None = None, **sources: Any) -> Project:
    """Create a project whose active configuration has these sources, by default two."""
    project = project or make_project()
    data = {"defaults": API, "sources": sources or SOURCES}
    now = timezone.now()
    version = save_version(
        kind="sources", project_id=project.pk, data=data, actor=None, now=now
    ).version
    activate(version=version, actor=None, now=now)
    return project


@contextmanager
def broker_at(url: str) -> Iterator[None]:
    """Return a broker connection of this process."""
    with override_settings(BROKER_URL=url):
        try:
            yield
        finally:
            close_shared_broker()


def publish(project: Project, first: int, last: int, *, ttl: float = 3600.0) -> RecordQueue:
    """Publish records ``first`` to ``last`` to job_data, as an import does."""
    queue = claim_queue(project_id=project.pk, name="job_data")
    broker = shared_broker()
    broker.declare(QueueSpec(queue.name))
    now = datetime.now(UTC)
    broker.publish(
        [
            Outgoing(
                body=json.dumps({"n": number}).encode(),
                key=queue.name,
                ttl_seconds=ttl,
                message_id=f"record-{number}",
                headers={EXPIRES_AT: round((now.timestamp() + ttl) * 1000)},
            )
            for number in range(first, last + 1)
        ]
    ).result(10)
    note_published(queue=queue, count=last - first + 1, ttl_seconds=ttl, now=now)
    return queue
