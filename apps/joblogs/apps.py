"""Registers the app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class JobLogsConfig(AppConfig):
    """Logs of runs and builds."""

    name = "apps.joblogs"
    label = "joblogs"
    verbose_name = _("Logs")

    def ready(self) -> None:
        """Register gauges."""
        from apps.joblogs import gauges  # noqa: F401
