"""Admin pages of access, and base classes of every app's admin."""

from apps.access.admin.base import (
    AuditedAdmin,
    ProjectScopedAdmin,
    ProjectScopedInline,
    shows_refusals,
)
from apps.access.admin.confirm import ask_first, asks_first, confirmed
from apps.access.admin.lockouts import AccessAttemptAdmin
from apps.access.admin.people import GroupAdmin, UserAdmin
from apps.access.admin.tokens import ApiTokenAdmin
from apps.access.admin.trail import AuditRecordAdmin

__all__ = [
    "AccessAttemptAdmin",
    "ApiTokenAdmin",
    "AuditRecordAdmin",
    "AuditedAdmin",
    "GroupAdmin",
    "ProjectScopedAdmin",
    "ProjectScopedInline",
    "UserAdmin",
    "ask_first",
    "asks_first",
    "confirmed",
    "shows_refusals",
]
