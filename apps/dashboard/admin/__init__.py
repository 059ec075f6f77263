"""The machinery in the admin: dead letters, processes, and what waits in the outbox.

Here and not in apps.runtime, which knows neither people nor the audit trail.
"""

from apps.dashboard.admin.messages import DeadLetterAdmin, OutboxMessageAdmin
from apps.dashboard.admin.processes import DaemonAdmin

__all__ = ["DaemonAdmin", "DeadLetterAdmin", "OutboxMessageAdmin"]
