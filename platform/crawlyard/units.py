"""Which processes make up one box."""

from __future__ import annotations

import socket
import sys

from crawlyard.settings.paths import ROOT
from crawlyard.supervisor import Unit
from yardkit import topology


def manage(*arguments: str) -> list[str]:
    """The argv of a management command of this installation."""
    return [sys.executable, str(ROOT / "manage.py"), *arguments]


def box(
    *, host: str, port: int, agents: int, agent_prefix: str = "agent", builds_apart: bool = True
) -> list[Unit]:
    """Everything one box runs: the daemons, workers, a beat and ``agents`` agents.

    ``builds_apart``: a worker for builds alone, so that no number of them holds up the schedules.
    """
    return [
        Unit("web", manage("run_web", "--host", host, "--port", str(port))),
        Unit("center", manage("run_center")),
        # Runs are stopped while the center, the agents and the statistics still listen.
        Unit("runner", manage("run_runner"), stops_first=True),
        Unit("router", manage("run_router")),
        Unit("seeds", manage("run_seeds")),
        Unit("collector", manage("run_collector")),
        fetcher(1),
        Unit("statistics", manage("run_statistics")),
        *_workers(builds_apart=builds_apart),
        Unit("beat", manage("run_beat")),
        Unit("logs", manage("run_log_ingester")),
        Unit("monitor", manage("run_monitor")),
        *(
            Unit(name, manage("run_agent", "--id", name, "--name", name))
            for name in (f"{agent_prefix}-{number}" for number in range(1, agents + 1))
        ),
    ]


def fetcher(number: int) -> Unit:
    """A fetcher of this box: 1 is the one it always runs, the others come and go with the work."""
    name = "fetcher" if number == 1 else f"fetcher-{number}"
    return Unit(name, manage("run_fetcher", "--name", fetcher_name(number)))


def fetcher_name(number: int) -> str:
    """What a fetcher of this box is called where those of all hosts are listed."""
    return f"{socket.gethostname()}-fetcher-{number}"


def _workers(*, builds_apart: bool) -> list[Unit]:
    # They stop first: with time for the tasks in their hands.
    if not builds_apart:
        return [Unit("worker", manage("run_worker"), stops_first=True)]
    # Two that start together must not both find the host's own name free.
    name = f"{socket.gethostname()}-builds"
    tasks = ("--queues", topology.TASKS)
    builds = ("--queues", topology.BUILDS, "--concurrency", "2", "--name", name)
    return [
        Unit("worker", manage("run_worker", *tasks), stops_first=True),
        Unit("builds", manage("run_worker", *builds), stops_first=True),
    ]
