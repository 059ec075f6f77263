from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class RuntimeConfig(AppConfig):
    """Outbox, heartbeats, leases and dead letters, which all other apps build on."""

    name = "apps.runtime"
    label = "runtime"
    verbose_name = _("Runtime")

    def ready(self) -> None:
        """Register checks, gauges and the guard for read-only PostgreSQL servers."""
        from django.db.backends.signals import connection_created

        import apps.runtime.checks
        import apps.runtime.gauges  # noqa: F401
        from apps.runtime.receivers import watch_writes

        connection_created.connect(watch_writes, dispatch_uid="runtime.watch_writes")
