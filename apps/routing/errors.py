"""What the router's ledger refuses, each with a stable code."""

from __future__ import annotations

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
