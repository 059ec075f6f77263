"""Registers the app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class RequestStoreConfig(AppConfig):
    """Download requests of every business, their store, their fetchers."""

    name = "apps.requeststore"
    label = "requeststore"
    verbose_name = _("Request store")
