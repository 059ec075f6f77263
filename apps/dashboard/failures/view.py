"""Content of the health page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from apps.access.models import User
from apps.dashboard.backlog import Backlog
from apps.dashboard.failures.impact import ImpactCounts, count
from apps.dashboard.failures.part import SystemPart
from apps.dashboard.failures.parts import process_parts, server_parts
from apps.dashboard.failures.runbook import runbook_section
from apps.dashboard.probes import ProbeResult
from apps.runtime.queries import database_now

# Messages normally leave the outbox at once; older ones need attention.
OUTBOX_LATE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class FailureView:
    """Servers, processes and counts of the health page."""

    servers: list[SystemPart]
    processes: list[SystemPart]
    counts: ImpactCounts
    outbox_is_late: bool

    @property
    def bad(self) -> list[SystemPart]:
        """Parts that need attention."""
        return [part for part in (*self.servers, *self.processes) if part.state.is_bad]


def failure_view(
    user: User, now: datetime, answers: Mapping[str, ProbeResult], backlog: Backlog
) -> FailureView:
    """Return the state of every part and the affected work, as visible to ``user``."""
    counts = count(user, now, database_now())
    waiting = None if backlog.problem else {line.name: line.ready for line in backlog.lines}
    servers, processes = server_parts(counts, answers), process_parts(counts, waiting)
    servers, processes = _with_runbook(servers), _with_runbook(processes)
    if not user.sees_everything:
        # Details contain server addresses, which only operators of the platform may see.
        servers = [replace(part, detail="") for part in servers]
    since = counts.outbox_since
    return FailureView(
        servers=servers,
        processes=processes,
        counts=counts,
        outbox_is_late=since is not None and now - since > OUTBOX_LATE,
    )


def _with_runbook(parts: list[SystemPart]) -> list[SystemPart]:
    """Remove links to sections that this installation does not have."""
    return [part if runbook_section(part.runbook) else replace(part, runbook="") for part in parts]
