"""Domain errors of the alerts app."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class AlertsError(DomainError):
    """Base class of the alerts app's domain errors."""


class NoticePending(AlertsError):
    """The notification is still being sent; resending it would deliver it twice."""

    code = "notice_not_ended"
    detail = _("This notification is still being sent. Wait until it has succeeded or failed.")


class IncidentEnded(AlertsError):
    """The incident has ended and can no longer be acknowledged, snoozed or closed."""

    code = "incident_over"
    detail = _("This incident has ended.")


class SnoozeOutOfRange(AlertsError):
    """The end of a snooze or mute is in the past or too far ahead."""

    code = "snooze_out_of_range"
    status = 422
    detail = _("Choose a time within the next 30 days.")


class BadRule(AlertsError):
    """A rule failed validation; ``fields["rule"]`` lists the problems."""

    code = "bad_rule"
    status = 422
    detail = _("The rule is not valid.")


class NoSuchRule(AlertsError):
    """The configuration has no rule of this name."""

    code = "no_such_rule"
    status = 404
    detail = _("Rule not found.")


class BadChannel(AlertsError):
    """The settings of a channel are invalid; ``fields`` says which."""

    code = "bad_channel"
    status = 422
    detail = _("The channel is not configured correctly. Check its fields.")


class ChannelExists(AlertsError):
    """The project, or the platform, already has a channel of this name."""

    code = "channel_exists"
    detail = _("A channel with this name already exists.")


class NoSuchChannel(AlertsError):
    """The project has no such channel, or the user has no role in it."""

    code = "no_such_channel"
    status = 422
    detail = _("This project has no such channel or person.")


class NoAddress(AlertsError):
    """The user has no e-mail address."""

    code = "no_address"
    status = 422
    detail = _("Your account has no e-mail address.")


class ChannelInUse(AlertsError):
    """The channel cannot be deleted while rules name it."""

    code = "channel_in_use"
    detail = _("Rules use this channel. Remove it from them first.")


class RuleExists(AlertsError):
    """The configuration already has a rule of this name."""

    code = "rule_exists"
    detail = _("A rule with this name already exists.")
