"""Refusals of this app for people and REST; those of the engine are in ``engine.errors``."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class RequestRefusal(DomainError):
    """Base of this app's refusals."""

    code = "request_store_error"


class NoSuchBiz(RequestRefusal):
    """The active configuration of the project names no such biz."""

    code = "unknown_biz"
    status = 404
    detail = _("This project has no such biz.")


class BizDisabled(RequestRefusal):
    """It takes no new requests."""

    code = "biz_disabled"
    detail = _("This biz is switched off.")


class BizFull(RequestRefusal):
    """So many wait that it takes no new ones for now."""

    code = "biz_full"
    status = 429
    detail = _("Too many requests of this biz wait.")


class BadRequests(RequestRefusal):
    """One or more of the requests cannot be stored; ``fields`` says which and why."""

    code = "bad_requests"
    status = 422
    detail = _("Some of these requests cannot be stored; none was.")


class StoreAway(RequestRefusal):
    """A storage node or its queue does not answer."""

    code = "store_unavailable"
    status = 503
    detail = _("The request store does not answer. Try again.")


class RebalanceRunning(RequestRefusal):
    """One at a time."""

    code = "rebalance_running"
    detail = _("A re-balance of this biz has not ended yet.")


class RebalanceEnded(RequestRefusal):
    """There is nothing to cancel."""

    code = "rebalance_ended"
    detail = _("This re-balance has ended.")


class NothingToRebalance(RequestRefusal):
    """All requests are where they belong: the biz has one epoch."""

    code = "nothing_to_rebalance"
    detail = _("Nothing can be moved: all requests of this biz were stored under one epoch.")


class EpochToCome(RequestRefusal):
    """Requests are still stored as the epoch before has it."""

    code = "epoch_to_come"
    detail = _("The newest epoch of this biz has not begun yet. Re-balance after it has.")


class BadSample(RequestRefusal):
    """A page that cannot be kept; ``fields`` says why."""

    code = "bad_sample"
    status = 422
    detail = _("This page cannot be kept.")


class TooManySamples(RequestRefusal):
    """A biz keeps so many sample pages and no more."""

    code = "too_many_samples"
    detail = _("This biz has as many sample pages as it may keep. Delete some first.")


class NotFetched(RequestRefusal):
    """The address gave no page; the text says why."""

    code = "not_fetched"
    status = 422
    detail = _("The page could not be downloaded.")


class BadTest(RequestRefusal):
    """A rule or a page that cannot be tried; ``fields`` says why."""

    code = "bad_test"
    status = 422
    detail = _("This cannot be tried.")
