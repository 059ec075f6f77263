from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class SourcesConfig(AppConfig):
    """Incremental imports from record APIs into queues."""

    name = "apps.sources"
    label = "sources"
    verbose_name = _("Sources")

    def ready(self) -> None:
        """Register gauges, and the kind of configuration that holds sources."""
        from apps.sources import gauges  # noqa: F401

        if not apps.is_installed("django.contrib.admin"):
            return
        from apps.configcenter.services import register
        from apps.sources.services.configuration import SourcesKind

        register(SourcesKind())
