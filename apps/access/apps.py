from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AccessConfig(AppConfig):
    """Users, roles, API tokens and the audit trail."""

    name = "apps.access"
    label = "access"
    verbose_name = _("Access")

    def ready(self) -> None:
        """Connect the receivers and register the checks."""
        from apps.access import checks, receivers  # noqa: F401
