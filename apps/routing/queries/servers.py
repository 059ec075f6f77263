"""The HTTP servers that rule sets have of their own (seed S2.9), and who listens there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from apps.routing.engine.files.placeholders import holds_any
from apps.routing.engine.rules import Server
from apps.routing.engine.servers import Ports, refusal, shown
from apps.routing.models import ServerReport

# A web process writes every five seconds; one that is silent for so long does not run.
ALIVE: Final = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class Listener:
    """One web process, and why it does not listen; "" when it does."""

    process: str
    problem: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ServerStanding:
    """The server of a rule set as it stands now."""

    address: str
    # Why this installation does not allow it; "" when it does.
    problem: str
    processes: tuple[Listener, ...]

    @property
    def why_closed(self) -> str:
        """What is wrong, of whichever process; "" where nothing is known to be."""
        return self.problem or next((each.problem for each in self.processes if each.problem), "")


def server_standing(
    *, project: int, server: Server, allowed: Iterable[Ports], now: datetime
) -> ServerStanding:
    """What the web processes that run say of it now."""
    address = shown(server)
    rows = ServerReport.objects.filter(project=project, address=address, at__gte=now - ALIVE)
    listeners = tuple(Listener(*row) for row in rows.order_by("process").values_list(*_FIELDS))
    # What is filled in there, web processes know.
    problem = "" if holds_any(server.bind) else refusal(server, allowed)
    return ServerStanding(address, problem, listeners)


_FIELDS: Final = ("process", "problem", "at")
