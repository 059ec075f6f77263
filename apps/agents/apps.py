"""Registers the app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AgentsConfig(AppConfig):
    """Download agents."""

    name = "apps.agents"
    label = "agents"
    verbose_name = _("Download agents")
