"""Configuration of the app ``jobs``."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class JobsConfig(AppConfig):
    """App of jobs, their runs, schedules and hosts."""

    name = "apps.jobs"
    label = "jobs"
    verbose_name = _("Jobs")

    def ready(self) -> None:
        """Register signal handlers, checks and gauges."""
        from apps.jobs import checks, gauges, receivers  # noqa: F401
