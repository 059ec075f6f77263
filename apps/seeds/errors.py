"""What this app refuses, for pages and REST; the engine's refusals are in ``engine.errors``."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class SeedsError(DomainError):
    """Base of this app's refusals."""

    code = "seeds_error"


class PoolDisabled(SeedsError):
    """A person has switched the pool off."""

    code = "pool_disabled"
    detail = _("This pool is switched off.")


class LeaseOver(SeedsError):
    """The lease of this call is over, so that nothing is handed out for it any more."""

    code = "lease_over"
    detail = _("What this call has leased is no longer leased by it.")


class WrongLease(SeedsError):
    """The lease belongs to somebody else, or there never was one of this number."""

    code = "wrong_lease"
    detail = _("The caller holds no lease of this number.")


class BadLease(SeedsError):
    """An owner, a time or a reason outside what is allowed."""

    code = "bad_lease"
    status = 422
    detail = _("This cannot be leased so.")


class NotInThatState(SeedsError):
    """What is asked does not fit the state of the resource."""

    code = "wrong_state"
    detail = _("This does not fit the state of the resource.")


class BadResource(SeedsError):
    """A name or a secret that a resource cannot have; the text does not quote it."""

    code = "bad_resource"
    status = 422
    detail = _("The resource is not valid.")


class UnreadableResources(SeedsError):
    """A file of resources that cannot be taken; nothing of it was."""

    code = "unreadable_file"
    status = 422
    detail = _("The file was not taken.")
