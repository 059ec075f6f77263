"""Query filters of incidents, channels and notifications."""

from __future__ import annotations

from typing import ClassVar

from apps.access.api.filters import FilterSet, IdFilter, MomentFilter
from apps.alerts.models import Channel, Incident, Notice


class IncidentFilter(FilterSet):
    """Incidents: ``?state=open&severity=critical&project=1&rule=late&source=run.failed``."""

    project = IdFilter(field_name="project_id")
    opened_after = MomentFilter(field_name="opened_at", lookup_expr="gte")
    opened_before = MomentFilter(field_name="opened_at", lookup_expr="lt")

    class Meta:
        model = Incident
        fields: ClassVar = ["project", "state", "severity", "rule", "source", "key"]


class ChannelFilter(FilterSet):
    """Query filters of channels: ``?project=1&name=ops&kind=mail``."""

    project = IdFilter(field_name="project_id")

    class Meta:
        model = Channel
        fields: ClassVar = ["project", "name", "kind", "enabled"]


class NoticeFilter(FilterSet):
    """Query filters of notifications: ``?incident=7&channel=1&state=failed``."""

    project = IdFilter(field_name="project_id")
    incident = IdFilter(field_name="incident_id")
    channel = IdFilter(field_name="channel_id")
    run = IdFilter(field_name="run")

    class Meta:
        model = Notice
        fields: ClassVar = [
            "project",
            "incident",
            "channel",
            "channel_name",
            "run",
            "kind",
            "state",
        ]
