"""Admin of dead letters, the outbox and daemons.

Here because apps.runtime must not import users and the audit trail.
"""

from apps.dashboard.admin.messages import DeadLetterAdmin, OutboxMessageAdmin
from apps.dashboard.admin.processes import DaemonAdmin

__all__ = ["DaemonAdmin", "DeadLetterAdmin", "OutboxMessageAdmin"]
