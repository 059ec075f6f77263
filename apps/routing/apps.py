"""Registers the app."""

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class RoutingConfig(AppConfig):
    """The router's rules and its ledger."""

    name = "apps.routing"
    label = "routing"
    verbose_name = _("Routing")

    def ready(self) -> None:
        """Add the outbounds that the engine must not know; make the rules a kind of configuration.

        The latter where configurations are saved, which is in the web and in commands; daemons
        take what was checked there, and start sooner.
        """
        from apps.routing import (
            gauges,  # noqa: F401
            outbounds_jobs,
            outbounds_requests,
            outbounds_seeds,
        )
        from apps.routing.engine.outbounds.registry import register as register_outbound

        register_outbound(outbounds_jobs.NAME, outbounds_jobs.StartRunOutbound)
        register_outbound(outbounds_requests.NAME, outbounds_requests.RequestStoreOutbound)
        register_outbound(outbounds_seeds.NAME, outbounds_seeds.SeedOutbound)
        if not apps.is_installed("django.contrib.admin"):
            return
        from apps.configcenter.services import register
        from apps.routing.services.configuration import RoutingKind

        register(RoutingKind())
