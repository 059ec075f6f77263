"""Admin pages."""

from apps.alerts.admin.channels import ChannelAdmin
from apps.alerts.admin.incidents import IncidentAdmin
from apps.alerts.admin.notices import NoticeAdmin
from apps.alerts.admin.rules import RuleAdmin

__all__ = ["ChannelAdmin", "IncidentAdmin", "NoticeAdmin", "RuleAdmin"]
