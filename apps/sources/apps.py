"""Registers the app."""

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class SourcesConfig(AppConfig):
    """Record APIs, read from the back to the front, each run only what is new."""

    name = "apps.sources"
    label = "sources"
    verbose_name = _("Sources")

    def ready(self) -> None:
        """Register what can be measured; make the settings a kind of configuration.

        The latter where configurations are saved.
        """
        from apps.sources import gauges  # noqa: F401

        if not apps.is_installed("django.contrib.admin"):
            return
        from apps.configcenter.services import register
        from apps.sources.services.configuration import SourcesKind

        register(SourcesKind())
