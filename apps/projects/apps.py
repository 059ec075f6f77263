"""App configuration."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ProjectsConfig(AppConfig):
    """Projects."""

    name = "apps.projects"
    label = "projects"
    verbose_name = _("Projects")

    def ready(self) -> None:
        """Register the gauges."""
        from apps.projects import gauges  # noqa: F401
