"""Configuration of the app ``projects``."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ProjectsConfig(AppConfig):
    """App of projects, webhook deliveries, builds and images."""

    name = "apps.projects"
    label = "projects"
    verbose_name = _("Projects")

    def ready(self) -> None:
        """Register the gauges."""
        from apps.projects import gauges  # noqa: F401
