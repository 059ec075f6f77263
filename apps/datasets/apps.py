"""Registers the app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class DatasetsConfig(AppConfig):
    """Items that runs, fetchers and imports find."""

    name = "apps.datasets"
    label = "datasets"
    verbose_name = _("Data")

    def ready(self) -> None:
        """Register receivers, and what can be measured."""
        from apps.datasets import gauges, receivers  # noqa: F401
