"""Choices of incidents, channels and notifications."""

from __future__ import annotations

from typing import Final

from django.db.models import TextChoices
from django.utils.translation import pgettext_lazy


class Severity(TextChoices):
    """Severity in ascending order."""

    INFO = "info", pgettext_lazy("severity", "info")
    WARNING = "warning", pgettext_lazy("severity", "warning")
    CRITICAL = "critical", pgettext_lazy("severity", "critical")


class IncidentState(TextChoices):
    """State of an incident; it is open until it recovers or a user closes it."""

    OPEN = "open", pgettext_lazy("incident", "open")
    RECOVERED = "recovered", pgettext_lazy("incident", "recovered")
    CLOSED = "closed", pgettext_lazy("incident", "closed")


class Step(TextChoices):
    """Kinds of entries in an incident's history."""

    OPENED = "opened", pgettext_lazy("step", "opened")
    REOPENED = "reopened", pgettext_lazy("step", "reopened")
    ACKNOWLEDGED = "acknowledged", pgettext_lazy("step", "acknowledged")
    SNOOZED = "snoozed", pgettext_lazy("step", "snoozed")
    ESCALATED = "escalated", pgettext_lazy("step", "escalated")
    REPEATED = "repeated", pgettext_lazy("step", "repeated")
    RECOVERED = "recovered", pgettext_lazy("step", "recovered")
    CLOSED = "closed", pgettext_lazy("step", "closed")


class RecoveryReason(TextChoices):
    """Reason for which an incident recovered."""

    WELL = "well", pgettext_lazy("ending", "recovered")
    QUIET = "quiet", pgettext_lazy("ending", "no further events")
    GONE = "gone", pgettext_lazy("ending", "no longer measured")
    RULE_GONE = "rule_gone", pgettext_lazy("ending", "rule removed")
    COVERED = "covered", pgettext_lazy("ending", "reported by the incident of the run")
    PROJECT_GONE = "project_gone", pgettext_lazy("ending", "project deleted")


class ChannelKind(TextChoices):
    """Kind of a notification channel."""

    MAIL = "mail", pgettext_lazy("channel", "mail")
    SMS = "sms", pgettext_lazy("channel", "SMS gateway")
    WEBHOOK = "webhook", pgettext_lazy("channel", "signed webhook")
    DINGTALK = "dingtalk", pgettext_lazy("channel", "DingTalk robot")
    WECOM = "wecom", pgettext_lazy("channel", "WeCom robot")
    FEISHU = "feishu", pgettext_lazy("channel", "Feishu robot")
    SLACK = "slack", "Slack"
    TEAMS = "teams", "Microsoft Teams"
    DISCORD = "discord", "Discord"
    TELEGRAM = "telegram", "Telegram"
    PAGERDUTY = "pagerduty", "PagerDuty"
    OPSGENIE = "opsgenie", "Opsgenie"
    NTFY = "ntfy", "ntfy"


# Kinds that open an alert and close it: each notification is a request of its own, and the end of
# an incident is always reported.
ALERTING: Final = frozenset({ChannelKind.PAGERDUTY, ChannelKind.OPSGENIE})
# Kinds whose receivers are programs: notifications are never combined.
SINGLY: Final = ALERTING | {ChannelKind.WEBHOOK}


class NoticeKind(TextChoices):
    """Reason for a notification."""

    OPENED = "opened", pgettext_lazy("notice", "opened")
    REPEATED = "repeated", pgettext_lazy("notice", "still open")
    ESCALATED = "escalated", pgettext_lazy("notice", "escalated")
    RECOVERED = "recovered", pgettext_lazy("notice", "recovered")
    RUN_ENDED = "run_ended", pgettext_lazy("notice", "run ended")
    TEST = "test", pgettext_lazy("notice", "test")


class NoticeState(TextChoices):
    """State of a notification; one deferred by quiet hours is waiting."""

    WAITING = "waiting", pgettext_lazy("notice", "waiting")
    SENT = "sent", pgettext_lazy("notice", "sent")
    FAILED = "failed", pgettext_lazy("notice", "failed")
    # Superseded, or the incident ended during quiet hours.
    DROPPED = "dropped", pgettext_lazy("notice", "dropped")


class NoticeProblem(TextChoices):
    """Reason for which a notification could not be sent."""

    NO_CHANNEL = "no_channel", pgettext_lazy("notice", "channel not found")
    OFF = "off", pgettext_lazy("notice", "channel disabled")
    SETTINGS = "settings", pgettext_lazy("notice", "channel not configured correctly")
    ADDRESS = "address", pgettext_lazy("notice", "address not allowed")
    NO_ANSWER = "no_answer", pgettext_lazy("notice", "no response")
    REFUSED = "refused", pgettext_lazy("notice", "rejected by the recipient")
    TOO_MANY = "too_many", pgettext_lazy("notice", "rate limit of the recipient reached")
