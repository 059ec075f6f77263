"""Registers the app."""

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class RequestStoreConfig(AppConfig):
    """Download requests of every business, their store, their fetchers."""

    name = "apps.requeststore"
    label = "requeststore"
    verbose_name = _("Request store")

    def ready(self) -> None:
        """Make the bizzes a kind of configuration, in processes that save some."""
        if not apps.is_installed("django.contrib.admin"):
            return
        from apps.configcenter.services import register
        from apps.requeststore.services.kind import BizKind

        register(BizKind())
