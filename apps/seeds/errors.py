"""Refusals of this app; those of the engine and of the service itself are not among them."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class SeedsRefusal(DomainError):
    """Base of this app's refusals."""

    code = "seeds_error"


class BadGrouping(SeedsRefusal):
    """Segments, time zone or keys that no service could work by."""

    code = "bad_grouping"
    status = 422
    detail = _("These rules are not possible.")


class BadArguments(SeedsRefusal):
    """An operation lacks what it needs."""

    code = "bad_arguments"
    status = 422
    detail = _("This operation needs other arguments.")


class RulesNeedMove(SeedsRefusal):
    """Other segments or keys would make known seeds new."""

    code = "rules_need_move"
    detail = _(
        "Segments, time zone and keys can only be changed together with the seeds: "
        "change the granularity instead."
    )


class OperationRunning(SeedsRefusal):
    """Another operation is running on this frontier."""

    code = "operation_running"
    detail = _("Another operation on this frontier has not ended yet.")


class OperationEnded(SeedsRefusal):
    """There is nothing left to cancel."""

    code = "operation_ended"
    detail = _("This operation has ended already.")


class MoveUnderWay(SeedsRefusal):
    """Half of the seeds are in their new place: only its end leaves all of them in one."""

    code = "move_under_way"
    detail = _("The seeds are being moved; this can no longer be cancelled.")


class SeedsLeased(SeedsRefusal):
    """Seeds that would be moved or deleted are leased."""

    code = "seeds_leased"
    detail = _("Seeds of this frontier are leased.")


class FrontierHasSeeds(SeedsRefusal):
    """A frontier is deleted when nothing is left of it."""

    code = "frontier_has_seeds"
    detail = _("This frontier still has seeds; wipe it first.")


class FrontierInUse(SeedsRefusal):
    """Jobs work on this frontier."""

    code = "frontier_in_use"
    detail = _("Jobs still use this frontier; give them another one first.")


class PoolDisabled(SeedsRefusal):
    """A person has switched the pool off."""

    code = "pool_disabled"
    detail = _("This pool is disabled.")


class LeaseOver(SeedsRefusal):
    """The lease of this call is over, so that nothing is handed out for it any more."""

    code = "lease_over"
    detail = _("The lease of this call has ended.")


class WrongResourceLease(SeedsRefusal):
    """The lease belongs to another caller, or does not exist."""

    code = "wrong_lease"
    detail = _("The caller does not hold this lease.")


class BadLease(SeedsRefusal):
    """An owner, a time or a reason outside what is allowed."""

    code = "bad_lease"
    status = 422
    detail = _("This cannot be leased so.")


class NotInThatState(SeedsRefusal):
    """The state of the resource does not allow the action."""

    code = "wrong_state"
    detail = _("The state of the resource does not allow this.")


class BadResource(SeedsRefusal):
    """A name or a secret that a resource cannot have; the text does not quote it."""

    code = "bad_resource"
    status = 422
    detail = _("The resource is not valid.")


class UnreadableResources(SeedsRefusal):
    """A file of resources that cannot be taken; nothing of it was."""

    code = "unreadable_file"
    status = 422
    detail = _("The file was not taken.")
