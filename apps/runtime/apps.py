"""Registers the app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class RuntimeConfig(AppConfig):
    """Runtime."""

    name = "apps.runtime"
    label = "runtime"
    verbose_name = _("Runtime")

    def ready(self) -> None:
        """Register the system checks and what can be measured."""
        import apps.runtime.checks
        import apps.runtime.gauges  # noqa: F401
