"""App configuration."""

from django.apps import AppConfig, apps
from django.utils.translation import gettext_lazy as _


class RequestStoreConfig(AppConfig):
    """Stored download requests and their fetchers."""

    name = "apps.requeststore"
    label = "requeststore"
    verbose_name = _("Request store")

    def ready(self) -> None:
        """Register fetchers as owners of agents, and bizzes as a kind of configuration."""
        from apps.agents.engine import owners
        from apps.requeststore import gauges  # noqa: F401
        from apps.requeststore.services.slots import fetcher_owners

        owners.register(owners.FETCHER, fetcher_owners)
        if not apps.is_installed("django.contrib.admin"):
            return
        from apps.configcenter.services import register
        from apps.requeststore.services.kind import BizKind

        register(BizKind())
