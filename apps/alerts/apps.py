"""Registers the app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AlertsConfig(AppConfig):
    """Rules on series and events, incidents, and who is told of them."""

    name = "apps.alerts"
    label = "alerts"
    verbose_name = _("Alerts")

    def ready(self) -> None:
        """Make known what rules may watch, the rules as a kind, and what can be measured."""
        from apps.alerts import gauges, receivers  # noqa: F401
        from apps.alerts.services.configuration import AlertsKind
        from apps.alerts.sources import register_sources
        from apps.configcenter.services import register

        register_sources()
        register(AlertsKind())
