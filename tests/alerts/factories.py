"""Factories of alert rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count
from typing import Any

from apps.alerts.models import Channel, Incident, Notice
from apps.alerts.states import ChannelKind, NoticeKind, Severity

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
_numbers = count(1)


def make_incident(**fields: Any) -> Incident:
    """Create an open incident, by default of the platform."""
    values: dict[str, Any] = {
        "rule": f"rule {next(_numbers)}",
        "key": "job:12",
        "source": "run.failed",
        "severity": Severity.WARNING,
        "facts": {"job": "news", "run": 7, "reason": "exit 1"},
        "address": "/admin/jobs/run/7/change/",
        "opened_at": NOW,
        "seen_at": NOW,
    }
    return Incident.objects.create(**(values | fields))


def make_channel(**fields: Any) -> Channel:
    """Create a channel, by default of kind mail; ``secrets`` is a dictionary."""
    values: dict[str, Any] = {
        "name": f"channel-{next(_numbers)}",
        "kind": ChannelKind.MAIL,
        "settings": {"to": ["ops@example.com"]},
    }
    if "secrets" in fields:
        fields["secrets"] = json.dumps(fields["secrets"])
    return Channel.objects.create(**(values | fields))


def make_notice(**fields: Any) -> Notice:
    """Create a due notification."""
    channel = fields.pop("channel", None) or make_channel()
    incident = fields.pop("incident", None) or make_incident(project=channel.project)
    values: dict[str, Any] = {
        "project": channel.project,
        "incident": incident,
        "channel": channel,
        "channel_name": channel.name,
        "kind": NoticeKind.OPENED,
        "created_at": NOW,
        "next_try_at": NOW,
    }
    return Notice.objects.create(**(values | fields))
