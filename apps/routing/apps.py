"""Registers the app."""

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class RoutingConfig(AppConfig):
    """The router's rules and its ledger."""

    name = "apps.routing"
    label = "routing"
    verbose_name = _("Routing")

    def ready(self) -> None:
        """Make the rules a kind of configuration, where configurations are saved.

        That is in the web and in commands; daemons take what was checked there, and start sooner.
        """
        if not apps.is_installed("django.contrib.admin"):
            return
        from apps.configcenter.services import register
        from apps.routing.services.configuration import RoutingKind

        register(RoutingKind())
