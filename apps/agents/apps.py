from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AgentsConfig(AppConfig):
    """Download agents."""

    name = "apps.agents"
    label = "agents"
    verbose_name = _("Download agents")

    def ready(self) -> None:
        """Register runs as owners of allocations; apps above register their own kinds."""
        from apps.agents import gauges  # noqa: F401
        from apps.agents.engine import owners
        from apps.agents.queries import run_owners

        owners.register(owners.RUN, run_owners)
