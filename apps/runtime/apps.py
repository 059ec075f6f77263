"""Registers the app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class RuntimeConfig(AppConfig):
    """Runtime."""

    name = "apps.runtime"
    label = "runtime"
    verbose_name = _("Runtime")

    def ready(self) -> None:
        """Register the checks, what can be measured, and the watch over connections."""
        from django.db.backends.signals import connection_created

        import apps.runtime.checks
        import apps.runtime.gauges  # noqa: F401
        from apps.runtime.receivers import watch_writes

        connection_created.connect(watch_writes, dispatch_uid="runtime.watch_writes")
