"""Celery tasks of projects. The database decides what is due: a repeated task does nothing."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from apps.projects.services.build_states import reap_builds, wake_builds
from apps.projects.services.build_worker import work_on_build
from apps.projects.services.deletion import purge_projects
from apps.projects.services.deliveries import forget_deliveries
from apps.runtime.services import database_now


# Acknowledged at the start: RabbitMQ redelivers a message that is unacknowledged for half an hour,
# and a build may take longer. The sweep finds builds that are lost by this.
@shared_task(name="projects.build", bind=True, acks_late=False)
def build(self: Any, build: int, **_unknown: Any) -> None:
    """Perform a queued build."""
    work_on_build(build_id=int(build), worker=str(self.request.hostname or "celery"))


@shared_task(name="projects.sweep_builds")
def sweep_builds(**_unknown: Any) -> None:
    """Reap the builds of dead workers, and wake workers for queued builds."""
    now = database_now()
    reap_builds(now=now)
    wake_builds(now=now)


@shared_task(name="projects.forget_deliveries")
def forget_old_deliveries(**_unknown: Any) -> None:
    """Delete deliveries beyond their retention."""
    forget_deliveries(now=database_now())


@shared_task(name="projects.purge")
def purge(**_unknown: Any) -> None:
    """Purge projects whose time to be restored is over."""
    purge_projects(now=database_now())
