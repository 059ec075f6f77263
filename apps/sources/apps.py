"""Registers the app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SourcesConfig(AppConfig):
    """Record APIs, read from the back to the front, each run only what is new."""

    name = "apps.sources"
    label = "sources"
    verbose_name = _("Sources")
