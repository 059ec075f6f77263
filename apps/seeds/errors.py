"""Errors of this app's services; those of the engine and the daemon are defined there."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class SeedsRefusal(DomainError):
    """Base of this app's errors."""

    code = "seeds_error"


class BadGrouping(SeedsRefusal):
    """Unusable segments, time zone or keys."""

    code = "bad_grouping"
    status = 422
    detail = _("These rules are not valid.")


class BadArguments(SeedsRefusal):
    """An argument of an operation is missing or invalid."""

    code = "bad_arguments"
    status = 422
    detail = _("The arguments of the operation are not valid.")


class RulesNeedMove(SeedsRefusal):
    """A change of segments or keys needs a move, or known seeds would count as new."""

    code = "rules_need_move"
    detail = _(
        "Segments, time zone and keys cannot be edited here. Change them on the Granularity "
        "page, which moves the seeds."
    )


class OperationRunning(SeedsRefusal):
    """Another operation is running on this frontier."""

    code = "operation_running"
    detail = _("Another operation on this URL queue has not ended yet.")


class OperationEnded(SeedsRefusal):
    """The operation has ended and cannot be cancelled."""

    code = "operation_ended"
    detail = _("This operation has already ended.")


class MoveUnderWay(SeedsRefusal):
    """Seeds are between two places; only the end of the move brings them together."""

    code = "move_under_way"
    detail = _("The seeds are being moved; this can no longer be cancelled.")


class SeedsStillLeased(SeedsRefusal):
    """Seeds to be moved or deleted are leased."""

    code = "seeds_leased"
    detail = _("Seeds of this URL queue are leased.")


class FrontierHasSeeds(SeedsRefusal):
    """The frontier to delete still has seeds."""

    code = "frontier_has_seeds"
    detail = _("This URL queue still has seeds; wipe it first.")


class FrontierInUse(SeedsRefusal):
    """Jobs use the frontier."""

    code = "frontier_in_use"
    detail = _("Jobs still use this URL queue; give them another one first.")


class PoolDisabled(SeedsRefusal):
    """A user has disabled the pool."""

    code = "pool_disabled"
    detail = _("This pool is disabled.")


class LeaseOver(SeedsRefusal):
    """The lease of a repeated call has ended, so that no resource is returned for it."""

    code = "lease_over"
    detail = _("The lease of this call has ended.")


class WrongResourceLease(SeedsRefusal):
    """The lease belongs to another caller or does not exist."""

    code = "wrong_lease"
    detail = _("The caller does not hold this lease.")


class BadLease(SeedsRefusal):
    """The owner, duration or reason of a lease is out of range."""

    code = "bad_lease"
    status = 422
    detail = _("The lease parameters are not valid.")


class NotInThatState(SeedsRefusal):
    """The state of the resource does not allow the action."""

    code = "wrong_state"
    detail = _("The state of the resource does not allow this.")


class BadResource(SeedsRefusal):
    """The name or secret of a resource is invalid; the text does not quote it."""

    code = "bad_resource"
    status = 422
    detail = _("The resource is not valid.")


class UnreadableResources(SeedsRefusal):
    """A file of resources is invalid; nothing was imported."""

    code = "unreadable_file"
    status = 422
    detail = _("The file was not imported.")
