"""Domain errors of the datasets app."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.access.errors import DomainError


class DatasetsError(DomainError):
    """Base class of the datasets app's domain errors."""


class BadDelivery(DatasetsError):
    """The settings of a delivery can never work; ``fields`` says which."""

    code = "bad_delivery"
    status = 422
    detail = _("The delivery is not configured correctly. Check its fields.")


class DeliveryExists(DatasetsError):
    """The dataset has a delivery of this name."""

    code = "delivery_exists"
    detail = _("The dataset already has a delivery of this name.")


class NothingToDeliver(DatasetsError):
    """Nothing is stored from there on, or it waits to be delivered anyway."""

    code = "nothing_to_deliver"
    detail = _("Nothing from there on has been delivered yet, or is still stored.")


class ItemQueryRefused(DatasetsError):
    """A filter, field, order or cursor that cannot be used."""

    code = "bad_item_query"
    status = 400
    detail = _("This query of items cannot be used.")


class ItemsUnavailable(DatasetsError):
    """The object store does not answer."""

    code = "data_unavailable"
    status = 503
    detail = _("The items cannot be read at the moment.")


class NothingToRetry(DatasetsError):
    """No request of the selection has failed and can be made again."""

    code = "nothing_to_retry"
    detail = _("There are no failed requests.")


class SettingsRefused(DatasetsError):
    """A key, schema or check that cannot be used."""

    code = "bad_dataset_settings"
    status = 422
    detail = _("These settings cannot be used.")


class RunIsPinned(DatasetsError):
    """The data of a pinned run is to be deleted."""

    code = "run_pinned"
    detail = _("The data of this run is pinned. Unpin it first.")


class RunIsActive(DatasetsError):
    """The data of a run that goes on is to be deleted."""

    code = "run_active"
    detail = _("The run is active. Stop it first.")
