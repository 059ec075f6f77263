"""Registers the app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class QueuestatsConfig(AppConfig):
    """Queue statistics."""

    name = "apps.queuestats"
    label = "queuestats"
    verbose_name = _("Queue statistics")

    def ready(self) -> None:
        """Register what can be measured."""
        from apps.queuestats import gauges  # noqa: F401
