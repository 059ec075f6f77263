"""What the router's ledger refuses, each with a stable code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class RoutingError(DomainError):
    """Base of this app's refusals."""

    code = "routing_error"


class ItemMoveRefused(RoutingError):
    """No item may be moved like that, whoever asks."""

    code = "item_move_refused"
    detail = _("The item cannot go from its state into this one.")


class ItemChanged(RoutingError):
    """Somebody else has moved the item since it was read."""

    code = "item_changed"
    detail = _("The item has changed in the meantime; look at it again.")


class ItemNotOpen(RoutingError):
    """The item has ended already."""

    code = "item_not_open"
    detail = _("The item has already ended.")


class ItemNotResubmittable(RoutingError):
    """Only an item that has ended without success can be submitted again."""

    code = "item_not_resubmittable"
    detail = _("Only an item that has ended without success can be submitted again.")


class ItemResubmitted(RoutingError):
    """The item was submitted again before: another item stands for it."""

    code = "item_resubmitted"
    detail = _("The item has already been submitted again.")


class ItemRefused(RoutingError):
    """What was submitted is no item."""

    code = "item_refused"
    status = 422
    detail = _("This is not an item.")


class NoActiveRules(RoutingError):
    """Nothing is active, so nobody could say where an item goes."""

    code = "no_active_rules"
    detail = _("This project has no active routing rules.")


class RulesBroken(RoutingError):
    """The active version was saved by a release whose rules this one cannot run."""

    code = "rules_broken"
    detail = _("The active routing rules cannot be run by this release.")


class ProjectNeeded(RoutingError):
    """Several projects have active rules, and the call names none of them."""

    code = "project_needed"
    detail = _("Several projects have routing rules; name one, as in /projects/NAME/task/.")


class InboundDisabled(RoutingError):
    """The rules have inbounds of HTTP, and all of them are switched off."""

    code = "inbound_disabled"
    detail = _("Every HTTP inbound of these rules is disabled.")


class ItemsRefused(RoutingError):
    """Something of a call is no item, so nothing was taken; ``reason`` is the first mistake's."""

    code = "items_refused"
    status = 422
    detail = _("Nothing was taken: not all of this are items.")

    def __init__(self, reason: str, fields: Mapping[str, Sequence[str]]) -> None:
        super().__init__(fields=fields)
        self.reason = reason


class FailuresUnwritable(RoutingError):
    """A line of the failure file could not be written, so the item has not ended either."""

    code = "failures_unwritable"
    status = 503
    detail = _("The failure file cannot be written; try again in a moment.")
