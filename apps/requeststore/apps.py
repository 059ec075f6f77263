"""Registers the app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class RequestStoreConfig(AppConfig):
    """Download requests of every business, their store, their fetchers."""

    name = "apps.requeststore"
    label = "requeststore"
    verbose_name = _("Request store")

    def ready(self) -> None:
        """Fetchers may own allocations of agents."""
        from apps.agents.engine import owners
        from apps.requeststore.services.slots import fetcher_owners

        owners.register(owners.FETCHER, fetcher_owners)
