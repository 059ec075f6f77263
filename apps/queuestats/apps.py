"""App configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class QueuestatsConfig(AppConfig):
    name = "apps.queuestats"
    label = "queuestats"
    verbose_name = _("Queue statistics")

    def ready(self) -> None:
        """Register the metrics and signal handlers of this app."""
        from apps.queuestats import gauges, receivers  # noqa: F401
