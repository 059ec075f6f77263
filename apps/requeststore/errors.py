"""Errors of this app for users and REST; those of the engine are in ``engine.errors``."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class RequestRefusal(DomainError):
    """Base class."""

    code = "request_store_error"


class NoSuchBiz(RequestRefusal):
    """The active configuration of the project has no such biz."""

    code = "unknown_biz"
    status = 404
    detail = _("This project has no such request group.")


class BizDisabled(RequestRefusal):
    """The biz is disabled and takes no requests."""

    code = "biz_disabled"
    detail = _("This request group is disabled.")


class BizFull(RequestRefusal):
    """``max_waiting`` is reached."""

    code = "biz_full"
    status = 429
    detail = _("The queue of this request group is full.")


class BadRequests(RequestRefusal):
    """Some requests are invalid; ``fields`` says which and why."""

    code = "bad_requests"
    status = 422
    detail = _("Some requests are invalid; none was stored.")


class RebalanceRunning(RequestRefusal):
    """Another re-balance of the biz is running."""

    code = "rebalance_running"
    detail = _("Another re-balance of this request group is running.")


class RebalanceEnded(RequestRefusal):
    """The re-balance has ended and cannot be cancelled."""

    code = "rebalance_ended"
    detail = _("This re-balance has ended.")


class ReextractionRunning(RequestRefusal):
    """Another re-extraction of the biz is running."""

    code = "reextraction_running"
    detail = _("Records of this request group are being extracted again already.")


class ReextractionEnded(RequestRefusal):
    """The re-extraction has ended and cannot be cancelled."""

    code = "reextraction_ended"
    detail = _("This re-extraction has ended.")


class NothingKept(RequestRefusal):
    """No page of the biz was ever kept."""

    code = "nothing_kept"
    detail = _("No pages of this request group are kept. Set pages in its settings.")


class NoDestination(RequestRefusal):
    """The settings of the biz discard records."""

    code = "no_destination"
    detail = _("The settings of this request group discard records.")


class NothingToRebalance(RequestRefusal):
    """The biz has one epoch, so every request is in its place."""

    code = "nothing_to_rebalance"
    detail = _("Nothing to move: all requests were stored under one epoch.")


class EpochNotStarted(RequestRefusal):
    """The newest epoch has not begun; requests are still stored under the one before."""

    code = "epoch_to_come"
    detail = _("The newest epoch has not started. Re-balance after it has started.")


class BadSample(RequestRefusal):
    """Page that cannot be stored as a sample; ``fields`` says why."""

    code = "bad_sample"
    status = 422
    detail = _("This page cannot be stored as a sample.")


class TooManySamples(RequestRefusal):
    """The biz has the maximum number of sample pages."""

    code = "too_many_samples"
    detail = _("This request group has reached its limit of sample pages. Delete some first.")


class NotFetched(RequestRefusal):
    """The URL returned no page; the text says why."""

    code = "not_fetched"
    status = 422
    detail = _("The page could not be downloaded.")


class BadTest(RequestRefusal):
    """Rule or page that cannot be tested; ``fields`` says why."""

    code = "bad_test"
    status = 422
    detail = _("This rule or page cannot be tested.")
