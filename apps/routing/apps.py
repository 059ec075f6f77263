from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class RoutingConfig(AppConfig):
    name = "apps.routing"
    label = "routing"
    verbose_name = _("Routing")

    def ready(self) -> None:
        """Register the outbounds that use other apps, and the rules as a kind of configuration.

        The engine may not import other apps, so their outbounds are registered here. The kind is
        needed only where configurations are saved, in web processes and commands. Daemons load
        versions that were checked there, and start faster without it.
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
