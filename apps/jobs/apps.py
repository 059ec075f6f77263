"""Registers the app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class JobsConfig(AppConfig):
    """Jobs."""

    name = "apps.jobs"
    label = "jobs"
    verbose_name = _("Jobs")

    def ready(self) -> None:
        """Listen to what other parts of the platform do; register what can be measured."""
        from apps.jobs import checks, gauges, receivers  # noqa: F401
