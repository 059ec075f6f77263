"""Admin pages of the configuration center."""

from apps.configcenter.admin.configurations import ConfigurationAdmin
from apps.configcenter.admin.versions import ConfigVersionAdmin

__all__ = ["ConfigVersionAdmin", "ConfigurationAdmin"]
