"""Incidents, notification channels, notifications, and yield baselines of jobs."""

from apps.alerts.models.channels import Channel, Notice
from apps.alerts.models.incidents import (
    Incident,
    IncidentNote,
    LastingHappening,
    RuleMute,
    SeenHappening,
    SourceMark,
)
from apps.alerts.models.yields import JobYield, YieldPolicy, YieldWatch

__all__ = [
    "Channel",
    "Incident",
    "IncidentNote",
    "JobYield",
    "LastingHappening",
    "Notice",
    "RuleMute",
    "SeenHappening",
    "SourceMark",
    "YieldPolicy",
    "YieldWatch",
]
