"""The failure page: every part, the bad ones first."""

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

# What was to be sent is sent at once; so late somebody should look.
OUTBOX_LATE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class FailureView:
    """Everything on the page."""

    servers: list[SystemPart]
    processes: list[SystemPart]
    counts: ImpactCounts
    outbox_is_late: bool

    @property
    def bad(self) -> list[SystemPart]:
        """What a person should look at."""
        return [part for part in (*self.servers, *self.processes) if part.state.is_bad]


def failure_view(
    user: User, now: datetime, answers: Mapping[str, ProbeResult], backlog: Backlog
) -> FailureView:
    """How every part is, and what hangs on it, as far as ``user`` sees it."""
    counts = count(user, now, database_now())
    waiting = None if backlog.problem else {line.name: line.ready for line in backlog.lines}
    servers, processes = server_parts(counts, answers), process_parts(counts, waiting)
    servers, processes = _with_runbook(servers), _with_runbook(processes)
    if not user.sees_everything:
        # Addresses of servers are for those who run them.
        servers = [replace(part, detail="") for part in servers]
    since = counts.outbox_since
    return FailureView(
        servers=servers,
        processes=processes,
        counts=counts,
        outbox_is_late=since is not None and now - since > OUTBOX_LATE,
    )


def _with_runbook(parts: list[SystemPart]) -> list[SystemPart]:
    """Without links to what does not lie here."""
    return [part if runbook_section(part.runbook) else replace(part, runbook="") for part in parts]
