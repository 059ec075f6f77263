from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ConfigcenterConfig(AppConfig):
    """Versioned configuration that daemons apply without a restart."""

    name = "apps.configcenter"
    label = "configcenter"
    verbose_name = _("Configuration")
