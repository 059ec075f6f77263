"""The admin of this app."""

from apps.requeststore.admin.monitoring import MonitoringAdmin
from apps.requeststore.admin.tester import SamplePageAdmin

__all__ = ["MonitoringAdmin", "SamplePageAdmin"]
