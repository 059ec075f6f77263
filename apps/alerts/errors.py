"""What this app refuses."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class AlertsError(DomainError):
    """Base of this app's refusals."""


class NoticeNotEnded(AlertsError):
    """It is on its way; sent again it would come twice."""

    code = "notice_not_ended"
    detail = _("This notification is still being sent. Wait until it has succeeded or failed.")


class IncidentOver(AlertsError):
    """The incident is over: nobody needs to acknowledge or snooze it any more."""

    code = "incident_over"
    detail = _("This incident is over.")


class SnoozeOutOfRange(AlertsError):
    """Snoozed until a time that has passed, or for too long."""

    code = "snooze_out_of_range"
    status = 422
    detail = _("Choose a time within the next 30 days.")


class BadRule(AlertsError):
    """A rule has problems; ``fields["rule"]`` lists them."""

    code = "bad_rule"
    status = 422
    detail = _("The rule has problems.")


class NoSuchRule(AlertsError):
    """There is no rule of that name."""

    code = "no_such_rule"
    status = 404
    detail = _("Rule not found.")


class BadChannel(AlertsError):
    """A channel with settings that cannot work."""

    code = "bad_channel"
    status = 422
    detail = _("The channel is not configured correctly. Check its fields.")


class ChannelExists(AlertsError):
    """The project, or the platform, has a channel of that name."""

    code = "channel_exists"
    detail = _("A channel with this name already exists.")


class ChannelInUse(AlertsError):
    """Rules tell by it."""

    code = "channel_in_use"
    detail = _("Rules use this channel. Remove it from them first.")


class RuleExists(AlertsError):
    """The configuration has a rule of that name."""

    code = "rule_exists"
    detail = _("A rule with this name already exists.")
