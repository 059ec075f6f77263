"""Registers the app."""

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class SourcesConfig(AppConfig):
    """Record APIs, read from the back to the front, each run only what is new."""

    name = "apps.sources"
    label = "sources"
    verbose_name = _("Sources")

    def ready(self) -> None:
        """Make the settings a kind of configuration, where configurations are saved."""
        if not apps.is_installed("django.contrib.admin"):
            return
        from apps.configcenter.services import register
        from apps.sources.services.configuration import SourcesKind

        register(SourcesKind())
