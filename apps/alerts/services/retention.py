"""Retention of incidents, and their handling when a project is deleted."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction

from apps.alerts.models import Incident, IncidentNote, Notice, RuleMute
from apps.alerts.services.incidents import changed
from apps.alerts.states import IncidentState, NoticeState, RecoveryReason, Step
from apps.projects.models import Project

AT_ONCE: Final = 1_000


def prune_incidents(*, now: datetime) -> int:
    """Delete incidents that ended ``ALERT_DAYS`` ago with their history, and expired mutes.

    Returns the number of deleted rows; deletes at most 1000 incidents per call.
    """
    since = now - timedelta(days=settings.ALERT_DAYS)
    old = Incident.objects.filter(ended_at__lt=since).order_by("ended_at")
    ids = list(old.values_list("pk", flat=True)[:AT_ONCE])
    RuleMute.objects.filter(until__lt=now).delete()
    return Incident.objects.filter(pk__in=ids).delete()[0]


@transaction.atomic
def detach_project(*, project: Project, now: datetime) -> None:
    """End the incidents of ``project`` before it is deleted, keeping them under its name.

    Sends no notifications: the project's channels are deleted with it.
    """
    mine = Incident.objects.filter(project=project)
    for incident in mine.open().select_for_update():
        IncidentNote.objects.create(
            incident=incident,
            at=now,
            what=Step.RECOVERED,
            detail={"why": RecoveryReason.PROJECT_GONE},
        )
        incident.state = IncidentState.RECOVERED
        changed(incident)
    mine.open().update(state=IncidentState.RECOVERED, ended_at=now, snoozed_until=None)
    mine.update(project_name=str(project)[:200])
    waiting = Notice.objects.filter(project=project, state=NoticeState.WAITING)
    waiting.update(state=NoticeState.DROPPED, next_try_at=None)
