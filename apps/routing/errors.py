"""Errors of the routing app; each has a stable code, which is part of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class RoutingError(DomainError):
    """Base class of this app's errors."""

    code = "routing_error"


class InvalidItemMove(RoutingError):
    """The requested change of state is not allowed from the item's current state."""

    code = "item_move_refused"
    detail = _("The task cannot move from its current state to this one.")


class ItemChanged(RoutingError):
    """The item was changed by a router or another user since it was read."""

    code = "item_changed"
    detail = _("The task has changed in the meantime. Reload it and try again.")


class ItemNotOpen(RoutingError):
    """The action needs an open item, and this one has ended."""

    code = "item_not_open"
    detail = _("The task has already ended.")


class ItemNotResubmittable(RoutingError):
    code = "item_not_resubmittable"
    detail = _("Only a task that ended without success can be submitted again.")


class ItemResubmitted(RoutingError):
    """The item was already resubmitted; a newer item replaces it."""

    code = "item_resubmitted"
    detail = _("The task has already been submitted again.")


class InvalidItem(RoutingError):
    """The submitted value is not a valid item."""

    code = "item_refused"
    status = 422
    detail = _("This is not a valid task.")


class NoActiveRules(RoutingError):
    """The project has no active rules, so its items cannot be routed."""

    code = "no_active_rules"
    detail = _("This project has no active routing rules. Activate a version first.")


class RulesBroken(RoutingError):
    """The active version was saved by a release whose rules this release cannot run."""

    code = "rules_broken"
    detail = _("This release cannot run the active routing rules. Save and activate them again.")


class ProjectNeeded(RoutingError):
    """The call names no project, and several projects have active rules."""

    code = "project_needed"
    detail = _("Several projects have routing rules. Name one in the path: /projects/NAME/task/.")


class InboundDisabled(RoutingError):
    """All HTTP inbounds of the rules are disabled."""

    code = "inbound_disabled"
    detail = _("Every HTTP inbound of these rules is disabled. Enable one and activate the rules.")


class InvalidItems(RoutingError):
    """At least one submitted value is not a valid item, so nothing was stored.

    ``reason`` is the error code of the first invalid value.
    """

    code = "items_refused"
    status = 422
    detail = _("Nothing was stored: not all values are valid tasks.")

    def __init__(self, reason: str, fields: Mapping[str, Sequence[str]]) -> None:
        super().__init__(fields=fields)
        self.reason = reason


class FailuresUnwritable(RoutingError):
    """The failure file could not be written, so the items that need a line in it did not end."""

    code = "failures_unwritable"
    status = 503
    detail = _("The failure file cannot be written. Try again in a moment.")
