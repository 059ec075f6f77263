"""Charts below the list of agents: one line for each of the busiest agents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlencode

from django.utils.translation import gettext as _

from apps.agents.models import Agent

# More lines in one chart are indistinguishable.
MOST_LINES: Final = 6
POINTS: Final = "/api/v1/series/points"


def agent_charts(agents: Iterable[Agent]) -> list[dict[str, Any]]:
    """Return CPU, memory, downloads per second and downloaders for the chart template."""
    shown = sorted(agents, key=lambda each: -each.qps)[:MOST_LINES]
    wanted = [
        (_("CPU"), "agent.cpu_percent", "%", 100.0),
        (_("Memory in use"), "agent.memory_percent", "%", 100.0),
        (_("Downloads per second"), "agent.qps", "/s", None),
        (_("Downloaders"), "agent.downloaders", "", None),
    ]
    return [
        {
            "title": title,
            "unit": unit,
            "maximum": maximum,
            "series": [_line(each, name) for each in shown],
        }
        for title, name, unit, maximum in wanted
        if shown
    ]


def _line(agent: Agent, name: str) -> dict[str, str]:
    about = urlencode({"name": name, "label": agent.agent_id})
    return {"source": f"{POINTS}?{about}", "title": str(agent)}
