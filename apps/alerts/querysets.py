"""Named filters of incidents, channels and notices."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Self

from apps.access.querysets import M_co, VisibleQuerySet
from apps.alerts.states import IncidentState, NoticeState
from apps.jobs.states import RunState


class IncidentQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Incidents; those of the platform are for who sees everything."""

    project_path = "project"

    def open(self) -> Self:
        """Those that are not over."""
        return self.filter(state=IncidentState.OPEN)


class RuleMuteQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Rules of which nobody is told for a while."""

    project_path = "project"

    def active(self, now: datetime) -> Self:
        """Those that hold now."""
        return self.filter(until__gt=now)


class ChannelQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Channels; those of the platform are for who sees everything."""

    project_path = "project"


class NoticeQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Notices."""

    project_path = "project"

    def due(self, now: datetime) -> Self:
        """Those to send now."""
        return self.filter(state=NoticeState.WAITING, next_try_at__lte=now)


class JobYieldQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """What runs have brought."""

    project_path = "project"

    def good(self) -> Self:
        """Of runs that ended well and brought something, or do not count what they bring."""
        return self.filter(state=RunState.EXITED).exclude(items=0)


class YieldWatchQuerySet(VisibleQuerySet[M_co], Generic[M_co]):
    """Where jobs stand."""

    project_path = "project"

    def watched(self) -> Self:
        """Of jobs that are enabled, and whose yield nobody has switched off."""
        return self.filter(job__enabled=True).exclude(job__yield_policy__enabled=False)
