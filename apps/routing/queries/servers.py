"""Status of the HTTP servers that rule sets open in the web processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apps.routing.engine.files.placeholders import holds_any
from apps.routing.engine.rules import Server
from apps.routing.engine.servers import Ports, refusal, shown
from apps.routing.models import ServerReport

# A web process reports every 5 s; after this time without a report it counts as stopped.
ALIVE: Final = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class Listener:
    """A web process, and why it does not listen; the problem is "" when it does."""

    process: str
    problem: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """Current status of the server of a rule set."""

    address: str
    # Why this installation does not allow the address; "" when it does.
    problem: str
    processes: tuple[Listener, ...]

    @property
    def why_closed(self) -> str:
        """Return the first problem of the address or of a process, or ""."""
        return self.problem or next(
            (process.problem for process in self.processes if process.problem), ""
        )


def server_status(
    *, project: int, server: Server, allowed: Iterable[Ports], now: datetime
) -> ServerStatus:
    """Return the server's status from the reports of running web processes."""
    address = shown(server)
    rows = ServerReport.objects.filter(project=project, address=address, at__gte=now - ALIVE)
    listeners = tuple(Listener(*row) for row in rows.order_by("process").values_list(*_FIELDS))
    # An address with placeholders can only be checked by the web processes, which fill them.
    problem = "" if holds_any(server.bind) else refusal(server, allowed)
    return ServerStatus(address, problem, listeners)


_FIELDS: Final = ("process", "problem", "at")
