"""Registers the app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ConfigcenterConfig(AppConfig):
    """Configuration in versions."""

    name = "apps.configcenter"
    label = "configcenter"
    verbose_name = _("Configuration")
