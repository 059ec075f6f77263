"""Query sets of incidents, channels, notifications and yields."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Self

from django.db.models import Q

from apps.access.querysets import M_co, VisibleQuerySet
from apps.alerts.states import IncidentState, NoticeState
from apps.jobs.models import Job
from apps.jobs.states import RunState
from apps.runtime.querysets import LeasedQuerySet


class IncidentQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Incidents; those of the platform are visible only to users who see every project."""

    project_path = "project"

    def open(self) -> Self:
        return self.filter(state=IncidentState.OPEN)


class RuleMuteQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Muted rules."""

    project_path = "project"

    def active(self, now: datetime) -> Self:
        """Return mutes that have not expired at ``now``."""
        return self.filter(until__gt=now)


class ChannelQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Channels; those of the platform are visible only to users who see every project."""

    project_path = "project"


class RunSubscriptionQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Subscriptions to runs."""

    project_path = "project"
    hidden_with = ("job",)

    def of_job(self, job_id: int) -> Self:
        """Return the subscriptions that cover a job: its own, its project's, and everyone's."""
        project = Job.objects.filter(pk=job_id).values("project")
        wide = Q(job=None) & (Q(project=None) | Q(project__in=project))
        return self.filter(Q(job=job_id) | wide)


class NoticeQuerySet(VisibleQuerySet[M_co], LeasedQuerySet[M_co], Generic[M_co]):  # type: ignore[override]  # as_manager
    """Notifications, each sent by one worker at a time; its attempts are the fencing token."""

    project_path = "project"
    lease_until = "next_try_at"
    lease_generation = "attempts"
    lease_owner = ""

    def due(self, now: datetime) -> Self:
        """Return waiting notifications whose next attempt is due at ``now``."""
        return self.filter(state=NoticeState.WAITING, next_try_at__lte=now)


class JobYieldQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Yields of finished runs."""

    project_path = "project"

    def good(self) -> Self:
        """Return yields of successful runs that returned items, or whose job does not count
        items."""
        return self.filter(state=RunState.EXITED).exclude(items=0)


class YieldWatchQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Yield status rows of jobs."""

    project_path = "project"

    def watched(self) -> Self:
        """Exclude disabled jobs and jobs with anomaly detection turned off."""
        return self.filter(job__enabled=True).exclude(job__yield_policy__enabled=False)
