"""The admin of this app."""

from apps.requeststore.admin.monitoring import MonitoringAdmin

__all__ = ["MonitoringAdmin"]
