"""Incidents, notification channels, notifications, and yield baselines of jobs."""

from apps.alerts.models.channels import Channel, Notice
from apps.alerts.models.incidents import (
    Incident,
    IncidentNote,
    OngoingCondition,
    ProcessedEvent,
    RuleMute,
    SourceMark,
)
from apps.alerts.models.subscriptions import RunSubscription
from apps.alerts.models.yields import JobYield, YieldPolicy, YieldWatch

__all__ = [
    "Channel",
    "Incident",
    "IncidentNote",
    "JobYield",
    "Notice",
    "OngoingCondition",
    "ProcessedEvent",
    "RuleMute",
    "RunSubscription",
    "SourceMark",
    "YieldPolicy",
    "YieldWatch",
]
