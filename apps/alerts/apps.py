"""Django app configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AlertsConfig(AppConfig):
    """Alert rules on series, events and conditions; incidents; notifications."""

    name = "apps.alerts"
    label = "alerts"
    verbose_name = _("Alerts")

    def ready(self) -> None:
        """Register event sources, the configuration kind ``alerts``, and gauges."""
        from apps.alerts import gauges, receivers  # noqa: F401
        from apps.alerts.services.configuration import AlertsKind
        from apps.alerts.sources import register_sources
        from apps.configcenter.services import register

        register_sources()
        register(AlertsKind())
