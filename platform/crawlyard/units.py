"""Which processes make up one box."""

from __future__ import annotations

import sys

from crawlyard.settings.paths import ROOT
from crawlyard.supervisor import Unit


def manage(*arguments: str) -> list[str]:
    """The argv of a management command of this installation."""
    return [sys.executable, str(ROOT / "manage.py"), *arguments]


def box(*, host: str, port: int, agents: int, agent_prefix: str = "agent") -> list[Unit]:
    """Everything one box runs: web, center, runner, statistics and ``agents`` agents."""
    return [
        Unit("web", manage("run_web", "--host", host, "--port", str(port))),
        Unit("center", manage("run_center")),
        # Runs are stopped while the center, the agents and the statistics still listen.
        Unit("runner", manage("run_runner"), stops_first=True),
        Unit("statistics", manage("run_statistics")),
        *(
            Unit(name, manage("run_agent", "--id", name, "--name", name))
            for name in (f"{agent_prefix}-{number}" for number in range(1, agents + 1))
        ),
    ]
