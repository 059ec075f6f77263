"""Incidents, who is told of them and how it went, and what jobs usually bring."""

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
