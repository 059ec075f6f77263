"""Registers the app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SeedsConfig(AppConfig):
    """Frontiers of seeds: segments, keys, stores."""

    name = "apps.seeds"
    label = "seeds"
    verbose_name = _("Seeds")

    def ready(self) -> None:
        """Register gauges."""
        from apps.seeds import gauges  # noqa: F401
