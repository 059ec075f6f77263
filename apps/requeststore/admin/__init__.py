"""Admin pages of the request store."""

from apps.requeststore.admin.bizzes import BizAdmin
from apps.requeststore.admin.monitoring_page import MonitoringAdmin
from apps.requeststore.admin.tester import SamplePageAdmin

__all__ = ["BizAdmin", "MonitoringAdmin", "SamplePageAdmin"]
